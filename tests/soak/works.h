/* SPDX-License-Identifier: Apache-2.0 */
/* What a soak puts on a stream around each AllReduce: fill the input, check the output,
 * and in a graph count the replay. On a GPU these are kernels (works.cu), on the CPU
 * stand-in host functions (works_host.c); the code is the same. A thread takes every
 * stride-th element. */
#ifndef IPS_TESTS_SOAK_WORKS_H
#define IPS_TESTS_SOAK_WORKS_H

#include "tests/soak/payload.h"

#define SOAK_GUARD 64 /* bytes before and after an output that nobody may touch */
#define SOAK_POISON 0xa5

/* The first wrong element; number UINT64_MAX: none. */
struct soak_first {
    uint64_t number, element, got;
    uint32_t what; /* enum soak_what */
    uint32_t taken;
    struct soak_payload payload;
    struct soak_expected expected;
};

enum soak_what { SOAK_RESULT, SOAK_INPUT, SOAK_BEFORE, SOAK_AFTER };

/* In device memory; the works add to it. */
struct soak_tally {
    uint64_t calls, elements, wrong;
    struct soak_first first;
};

/* One AllReduce of one rank, the one parameter of all works. */
struct soak_call {
    uint64_t seed;    /* of the run */
    uint64_t number;  /* of the call; in a graph, in its first replay */
    uint64_t *replay; /* the graph's count of replays in device memory, NULL: eager */
    uint64_t stride;  /* calls of one replay */
    void *in, *out;   /* alike when in place */
    uint64_t count;
    struct soak_tally *tally;
    uint32_t rank, nranks, type, op, values;
    uint32_t delay; /* one fill in so many takes its time; 0: none */
};

enum soak_work { SOAK_FILL, SOAK_CHECK, SOAK_ADVANCE, SOAK_WORKS };

SOAK_FN uint64_t soak_number(const struct soak_call *c)
{
    return c->number + (c->replay ? *c->replay * c->stride : 0);
}

SOAK_FN struct soak_payload soak_payload_of(const struct soak_call *c, uint64_t number)
{
    struct soak_payload p = {soak_mix(c->seed ^ soak_mix(number)), c->nranks, c->type,
                             c->op, c->values};
    return p;
}

SOAK_FN uint64_t soak_load(const void *base, unsigned bytes, uint64_t index)
{
    switch (bytes) {
    case 1:
        return ((const uint8_t *)base)[index];
    case 2:
        return ((const uint16_t *)base)[index];
    case 4:
        return ((const uint32_t *)base)[index];
    default:
        return ((const uint64_t *)base)[index];
    }
}

SOAK_FN void soak_store(void *base, unsigned bytes, uint64_t index, uint64_t value)
{
    switch (bytes) {
    case 1:
        ((uint8_t *)base)[index] = (uint8_t)value;
        break;
    case 2:
        ((uint16_t *)base)[index] = (uint16_t)value;
        break;
    case 4:
        ((uint32_t *)base)[index] = (uint32_t)value;
        break;
    default:
        ((uint64_t *)base)[index] = value;
    }
}

/* Nanoseconds that this rank's fill of this call takes longer, mostly none. */
SOAK_FN uint64_t soak_delay_ns(const struct soak_call *c, uint64_t number)
{
    const uint64_t random =
        soak_mix(c->seed + soak_mix(number * IPS_MAX_RANKS + c->rank));
    if (!c->delay || random % c->delay)
        return 0;
    return 1000 + (random >> 32) % 200000;
}

SOAK_FN void soak_fill(const struct soak_call *c, uint64_t first, uint64_t stride)
{
    const struct soak_payload p = soak_payload_of(c, soak_number(c));
    const unsigned bytes = soak_bytes(c->type);
    const uint64_t seed = soak_rank_seed(&p, c->rank);
    unsigned char *out = (unsigned char *)c->out;
    for (uint64_t i = first; i < SOAK_GUARD; i += stride)
        out[i - SOAK_GUARD] = out[c->count * bytes + i] = SOAK_POISON;
    for (uint64_t i = first; i < c->count; i += stride) {
        if (c->out != c->in) /* what is never written must not look right */
            soak_store(c->out, bytes, i, ~soak_element(&p, seed, i));
        soak_store(c->in, bytes, i, soak_element(&p, seed, i));
    }
}

/* Works of several streams add at once. */
SOAK_FN void soak_add(uint64_t *to, uint64_t value)
{
#ifdef __CUDA_ARCH__
    atomicAdd((unsigned long long *)to, (unsigned long long)value);
#else
    __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
#endif
}

SOAK_FN void soak_wrong(const struct soak_call *c, uint64_t number, uint64_t element,
                        enum soak_what what, uint64_t got, const struct soak_payload *p,
                        const struct soak_expected *e)
{
    struct soak_first *first = &c->tally->first;
    soak_add(&c->tally->wrong, 1);
#ifdef __CUDA_ARCH__
    if (atomicExch(&first->taken, 1u))
#else
    if (__atomic_exchange_n(&first->taken, 1u, __ATOMIC_RELAXED))
#endif
        return;
    first->number = number;
    first->element = element;
    first->what = what;
    first->got = got;
    first->payload = *p;
    first->expected = *e;
}

SOAK_FN void soak_check_guards(const struct soak_call *c, uint64_t number,
                               const struct soak_payload *p, uint64_t first,
                               uint64_t stride)
{
    const unsigned char *before = (const unsigned char *)c->out - SOAK_GUARD;
    const unsigned char *after =
        (const unsigned char *)c->out + c->count * soak_bytes(c->type);
    const struct soak_expected e = {0, 0, SOAK_POISON, 0};
    for (uint64_t i = first; i < SOAK_GUARD; i += stride) {
        if (before[i] != SOAK_POISON)
            soak_wrong(c, number, i, SOAK_BEFORE, before[i], p, &e);
        if (after[i] != SOAK_POISON)
            soak_wrong(c, number, i, SOAK_AFTER, after[i], p, &e);
    }
}

SOAK_FN void soak_check(const struct soak_call *c, uint64_t first, uint64_t stride)
{
    const uint64_t number = soak_number(c);
    const struct soak_payload p = soak_payload_of(c, number);
    const unsigned bytes = soak_bytes(c->type);
    uint64_t seeds[IPS_MAX_RANKS], checked = 0;
    for (uint32_t r = 0; r < c->nranks; r++)
        seeds[r] = soak_rank_seed(&p, r);
    for (uint64_t i = first; i < c->count; i += stride, checked++) {
        const struct soak_expected e = soak_expect(&p, seeds, i);
        const uint64_t got = soak_load(c->out, bytes, i);
        if (!soak_right(&p, &e, got))
            soak_wrong(c, number, i, SOAK_RESULT, got, &p, &e);
        if (c->in != c->out) {
            const struct soak_expected own = {0, 0, soak_element(&p, seeds[c->rank], i),
                                              0};
            const uint64_t in = soak_load(c->in, bytes, i);
            if (in != own.bits)
                soak_wrong(c, number, i, SOAK_INPUT, in, &p, &own);
        }
    }
    soak_check_guards(c, number, &p, first, stride);
    if (checked)
        soak_add(&c->tally->elements, checked);
    if (first == 0)
        soak_add(&c->tally->calls, 1);
}

#endif
