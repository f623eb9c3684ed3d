/* SPDX-License-Identifier: Apache-2.0 */
/* The probe of a rank's links to all others: kernels resident on both sides pass words back
 * and forth, and the owner of the memory checks what arrived there. A link that drops
 * writes, mirrors them back to the writer, or delivers them only when the writer's kernel
 * ends does not pass. Bounded by a deadline on the device. */
#ifndef IPS_KERNELS_PROBE_H
#define IPS_KERNELS_PROBE_H

#include "kernels/mem.h"
#include "kernels/wire.h"

/* A word that only this sender would write to this receiver in this round (finalizer of
 * splitmix64). */
IPS_DEVICE uint64_t ips_probe_word(uint64_t seed, uint32_t round, uint32_t sender,
                                   uint32_t receiver, uint32_t word)
{
    uint64_t x = seed + word + 1 +
                 64 * (((uint64_t)round * IPS_MAX_RANKS + sender) * IPS_MAX_RANKS + receiver);
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* IPS_PROBE_WORDS threads hold the link to each position; a warp with a bad link stops. */
IPS_DEVICE void ips_probe_run(const struct ips_probe_args *args)
{
    const uint64_t start = ips_clock_ns();
    const uint32_t peer = ips_thread() / IPS_PROBE_WORDS;
    const uint32_t word = ips_thread() % IPS_PROBE_WORDS;
    uint32_t *bad_mask = (uint32_t *)ips_shared(); /* by warp */
    const bool has_peer = peer < args->nranks && peer != args->rank;
    bool bad = false;
    for (uint32_t round = 0; round < IPS_PROBE_ROUNDS && !ips_ballot(bad); round++) {
        if (!has_peer)
            continue;
        struct ips_mailbox *mine = (struct ips_mailbox *)args->mailbox[args->rank];
        struct ips_mailbox *theirs = (struct ips_mailbox *)args->mailbox[peer];
        const uint32_t half = round % 2;
        ips_st_release(&theirs->probe[args->rank].word[half][word],
                       ips_probe_word(args->seed, round, args->rank, peer, word));
        const uint64_t expected = ips_probe_word(args->seed, round, peer, args->rank, word);
        while (ips_ld_acquire(&mine->probe[peer].word[half][word]) != expected && !bad) {
            ips_spin();
            bad = ips_clock_ns() - start > args->deadline_ns;
        }
    }
    const uint32_t late = ips_ballot(bad);
    if (ips_thread() % 32 == 0)
        bad_mask[ips_thread() / 32] =
            ((late & 0xffffu ? 1u : 0u) | (late >> 16 ? 2u : 0u)) << peer;
    ips_barrier();
    if (ips_thread() != 0)
        return;
    uint32_t all = 0;
    for (uint32_t warp = 0; warp < ips_threads() / 32; warp++)
        all |= bad_mask[warp];
    ips_st_word(&args->control->probe_bad, all);
    ips_st_release(&args->control->probe_done, 1);
}

#endif
