/* SPDX-License-Identifier: Apache-2.0 */
/* The probe of a rank's two links: kernels resident on both sides pass words back and forth,
 * and the owner of the memory checks what arrived there. A link that drops writes, mirrors
 * them back to the writer, or delivers them only when the writer's kernel ends does not
 * pass. Bounded by a deadline on the device. */
#ifndef IPS_KERNELS_PROBE_H
#define IPS_KERNELS_PROBE_H

#include "kernels/mem.h"
#include "kernels/wire.h"

/* A word that only this sender would write in this round (finalizer of splitmix64). */
IPS_DEVICE uint64_t ips_probe_word(uint64_t seed, uint32_t round, uint32_t sender,
                                   uint32_t side, uint32_t word)
{
    uint64_t x = seed + (((uint64_t)round * IPS_MAX_RANKS + sender) * 2 + side) * 64 + word + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Threads 0 to 15 hold the link to the predecessor, 16 to 31 the one to the successor. */
IPS_DEVICE void ips_probe_run(const struct ips_probe_args *args)
{
    const uint64_t start = ips_clock_ns();
    const uint32_t side = ips_thread() / IPS_PROBE_WORDS % 2;
    const uint32_t word = ips_thread() % IPS_PROBE_WORDS;
    struct ips_slab_head *mine = (struct ips_slab_head *)args->slab;
    struct ips_slab_head *peer = (struct ips_slab_head *)(side ? args->next : args->prev);
    const uint32_t other =
        (args->rank + (side ? 1 : args->nranks - 1)) % args->nranks;
    bool bad = false;
    for (uint32_t round = 0; round < IPS_PROBE_ROUNDS && !ips_ballot(bad); round++) {
        const uint32_t half = round % 2;
        /* What I write into my successor's slab, it reads as its predecessor's. */
        ips_st_release(&peer->probe[1 - side].word[half][word],
                       ips_probe_word(args->seed, round, args->rank, 1 - side, word));
        const uint64_t expected = ips_probe_word(args->seed, round, other, side, word);
        while (ips_ld_acquire(&mine->probe[side].word[half][word]) != expected && !bad) {
            ips_spin();
            bad = ips_clock_ns() - start > args->deadline_ns;
        }
    }
    const uint32_t late = ips_ballot(bad);
    if (ips_thread() != 0)
        return;
    ips_st_word(&args->control->probe_bad,
                (late & 0xffffu ? 1u : 0u) | (late >> 16 ? 2u : 0u));
    ips_st_release(&args->control->probe_done, 1);
}

#endif
