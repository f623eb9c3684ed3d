/* SPDX-License-Identifier: Apache-2.0 */
/* Makes keys. One unique id is its own key; whatever is longer, or made from another key,
 * becomes a digest of 256 bits, enough that two never meet by chance. It need not resist
 * an attacker: only processes of the same user get at the segment. */
#include "shim/key.h"

#include <string.h>
#include <unistd.h>

#include "shim/settings.h"

#define LANES 4

struct digest {
    uint64_t lane[LANES];
};

static void absorb(struct digest *digest, uint64_t word)
{
    static const uint64_t odd[LANES] = {0x9e3779b97f4a7c15u, 0xbf58476d1ce4e5b9u,
                                        0x94d049bb133111ebu, 0xd6e8feb86659fd93u};
    for (int i = 0; i < LANES; i++) {
        digest->lane[i] = (digest->lane[i] ^ word) * odd[i];
        digest->lane[i] ^= digest->lane[i] >> 29;
    }
}

static void absorb_bytes(struct digest *digest, const void *bytes, size_t count)
{
    absorb(digest, count);
    for (size_t at = 0; at < count; at += sizeof(uint64_t)) {
        uint64_t word = 0;
        size_t left = count - at;
        memcpy(&word, (const char *)bytes + at, left < sizeof word ? left : sizeof word);
        absorb(digest, word);
    }
}

static void set(struct ips_key *key, const void *bytes, size_t count)
{
    memset(key, 0, sizeof *key);
    memcpy(key->bytes, bytes, count);
    key->count = count;
}

void ips_key_none(struct ips_key *ret_key, const char *why_not)
{
    memset(ret_key, 0, sizeof *ret_key);
    ret_key->why_not = why_not;
}

static int switched_off(struct ips_key *ret_key)
{
    if (!ips_settings()->enable)
        ips_key_none(ret_key, "IPCSHIM_ENABLE=0");
    return !ips_settings()->enable;
}

void ips_key_of_ids(struct ips_key *ret_key, const ncclUniqueId *ids, int count,
                    int nranks)
{
    if (switched_off(ret_key))
        return;
    if (ips_settings_constant_id()) {
        ips_key_none(ret_key, "NCCL_COMM_ID gives all communicators one id");
        return;
    }
    if (count == 1) {
        struct {
            ncclUniqueId id;
            int32_t nranks;
        } one = {*ids, nranks};
        set(ret_key, &one, sizeof one);
        return;
    }
    struct digest digest = {{1, 1, 1, 1}};
    absorb(&digest, (uint64_t)nranks);
    for (int i = 0; i < count; i++)
        absorb_bytes(&digest, &ids[i], sizeof ids[i]);
    set(ret_key, &digest, sizeof digest);
}

void ips_key_random(struct ips_key *ret_key)
{
    struct digest digest;
    if (switched_off(ret_key))
        return;
    if (getentropy(&digest, sizeof digest))
        ips_key_none(ret_key, "no random numbers");
    else
        set(ret_key, &digest, sizeof digest);
}

void ips_key_of_child(struct ips_key *ret_key, const struct ips_key *parent,
                      unsigned split, int color)
{
    if (!parent->count) {
        ips_key_none(ret_key, parent->why_not);
        return;
    }
    struct digest digest = {{2, 2, 2, 2}};
    absorb_bytes(&digest, parent->bytes, parent->count);
    absorb(&digest, split);
    absorb(&digest, (uint64_t)color);
    set(ret_key, &digest, sizeof digest);
}
