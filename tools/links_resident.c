/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's own probe between two GPUs: kernels that stay on both pass words back and
 * forth. A link that delivers what is stored only when the kernel that stored it goes
 * passes all else. */
#include <stddef.h>

#include "kernels/wire.h"
#include "tools/links.h"

#define DEADLINE_NS 500000000ull

_Static_assert(sizeof(struct ips_mailbox) <= LINKS_DATA, "an inbox begins with one");

/* Its mailbox is the start of its inbox, what it tells the host goes to its outbox. */
static int clear(struct links_machine *m, unsigned gpu)
{
    const struct links_gpu *at = &m->at[gpu];
    LINKS_TRY(links_enter(m, gpu));
    LINKS_TRY(m->gpu->cuMemsetD8Async(at->inbox, 0, LINKS_DATA, at->in));
    LINKS_TRY(m->gpu->cuMemsetD8Async(at->outbox, 0, sizeof(struct ips_control), at->in));
    return m->gpu->cuStreamSynchronize(at->in);
}

static int launch(struct links_machine *m, const unsigned *gpu, uint32_t rank,
                  uint64_t seed)
{
    const struct links_gpu *at = &m->at[gpu[rank]];
    struct ips_probe_args args = {
        .mailbox = {(void *)(uintptr_t)m->at[gpu[0]].inbox,
                    (void *)(uintptr_t)m->at[gpu[1]].inbox},
        .control = (struct ips_control *)(uintptr_t)at->outbox,
        .seed = seed,
        .deadline_ns = DEADLINE_NS,
        .rank = rank,
        .nranks = 2,
    };
    void *parameters[] = {&args};
    LINKS_TRY(links_enter(m, gpu[rank]));
    return m->gpu->cuLaunchKernel(at->probe, 1, 1, 1, IPS_PROBE_THREADS, 1, 1, 0, at->in,
                                  parameters, NULL);
}

static int read_bad(struct links_machine *m, unsigned gpu, uint32_t *ret_bad)
{
    const struct links_gpu *at = &m->at[gpu];
    LINKS_TRY(links_wait(m, gpu, at->in));
    LINKS_TRY(m->gpu->cuMemcpyDtoHAsync(
        ret_bad, at->outbox + offsetof(struct ips_control, probe_bad), sizeof *ret_bad,
        at->in));
    return m->gpu->cuStreamSynchronize(at->in);
}

static int once(struct links_machine *m, const unsigned *gpu, int *ret_bad)
{
    const uint64_t seed = ++m->turns * 0xd1b54a32d192ed03ull | 1;
    uint32_t bad[2] = {0, 0};
    for (uint32_t rank = 0; rank < 2; rank++)
        LINKS_TRY(clear(m, gpu[rank]));
    for (uint32_t rank = 0; rank < 2; rank++)
        LINKS_TRY(launch(m, gpu, rank, seed));
    for (uint32_t rank = 0; rank < 2; rank++)
        LINKS_TRY(read_bad(m, gpu[rank], &bad[rank]));
    *ret_bad = bad[0] || bad[1];
    return 0;
}

int links_resident(struct links_machine *m, unsigned a, unsigned b, int *ret_bad)
{
    const unsigned gpu[2] = {a, b};
    LINKS_TRY(once(m, gpu, ret_bad));
    return *ret_bad ? once(m, gpu, ret_bad) : 0; /* it may have been busy */
}
