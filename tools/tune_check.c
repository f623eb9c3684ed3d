/* SPDX-License-Identifier: Apache-2.0 */
/* The data of one size of `ipcshim tune`: every byte of every result is compared. */
#include <string.h>

#include "tools/reference.h"
#include "tools/tune_rank.h"

#define POISON 0xa5

static struct ips_payload payload_of(const struct tune_rank *r, uint64_t bytes)
{
    return (struct ips_payload){.seed = ips_mix(bytes),
                                .nranks = r->page->sync.nranks,
                                .type = IPS_FLOAT32,
                                .op = IPS_SUM,
                                .values = IPS_VALUES_EXACT};
}

int tune_upload(struct tune_rank *r, uint64_t bytes)
{
    const struct ips_payload payload = payload_of(r, bytes);
    ips_payload_fill(&payload, r->rank, bytes / 4, r->host);
    r->right_bytes = 0;
    return device_upload(&r->device, r->in, r->host, bytes, r->stream);
}

int tune_poison(struct tune_rank *r, uint64_t bytes)
{
    return device_fill(&r->device, r->out, POISON, bytes, r->stream);
}

int tune_compare(struct tune_rank *r, uint64_t bytes, int *ret_wrong)
{
    const struct ips_payload payload = payload_of(r, bytes);
    struct ips_mismatch mismatch;
    if (device_download(&r->device, r->host, r->out, bytes, r->stream))
        return -1;
    if (r->right_bytes == bytes) {
        *ret_wrong = memcmp(r->host, r->right, bytes) != 0;
        return 0;
    }
    *ret_wrong = ips_payload_check(&payload, 0, bytes / 4, r->host, &mismatch) != 0;
    if (!*ret_wrong) {
        memcpy(r->right, r->host, bytes);
        r->right_bytes = bytes;
    }
    return 0;
}
