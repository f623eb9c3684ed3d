/* SPDX-License-Identifier: Apache-2.0 */
/* The soak's data and its judgement against tools/reference.c, which is written
 * differently and computes in long double: the same inputs bit by bit, and the same
 * verdict on outputs from right over slightly off to wrong, for every type, operation,
 * kind of values and number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "tests/soak/payload.h"
#include "tools/reference.h"

#define COUNT 64

static unsigned long compared, failures, accepted, refused;

static void fail(const struct soak_payload *p, const char *what, uint64_t index,
                 uint64_t bits)
{
    if (failures++ < 20)
        printf("%s %s values %u ranks %u: %s, element %llu 0x%llx\n",
               ips_type_name((int)p->type), ips_op_name((int)p->op), p->values, p->nranks,
               what, (unsigned long long)index, (unsigned long long)bits);
}

static uint64_t bits_at(const void *base, unsigned bytes, uint64_t index)
{
    uint64_t bits = 0;
    memcpy(&bits, (const char *)base + index * bytes, bytes);
    return bits;
}

static struct ips_payload other_form(const struct soak_payload *p)
{
    return (struct ips_payload){.seed = p->seed,
                                .nranks = p->nranks,
                                .type = (enum ips_type)p->type,
                                .op = (enum ips_op)p->op,
                                .values = (enum ips_values)p->values};
}

static void same_inputs(const struct soak_payload *p)
{
    struct ips_payload reference = other_form(p);
    unsigned char input[COUNT * 8];
    unsigned bytes = soak_bytes(p->type);
    for (unsigned r = 0; r < p->nranks; r++) {
        uint64_t seed = soak_rank_seed(p, r);
        ips_payload_fill(&reference, r, COUNT, input);
        for (uint64_t i = 0; i < COUNT; i++, compared++)
            if (soak_element(p, seed, i) != bits_at(input, bytes, i))
                fail(p, "another input", i, bits_at(input, bytes, i));
    }
}

/* The bits of the float nearest to the value, or so; of an integer, the value itself. */
static uint64_t nearest(const struct soak_payload *p, const struct soak_expected *e)
{
    uint64_t wide;
    uint32_t word;
    float narrow = (float)e->value;
    if (!soak_is_float(p->type))
        return e->bits;
    memcpy(&wide, &e->value, 8);
    memcpy(&word, &narrow, 4);
    if (p->type == IPS_FLOAT64)
        return wide;
    if (p->type == IPS_FLOAT32)
        return word;
    if (p->type == IPS_BFLOAT16)
        return word >> 16;
    uint64_t exponent = wide >> 52 & 2047, sign = wide >> 63 << 15;
    if (exponent == 2047 || exponent < 1023 - 14)
        return sign | (exponent == 2047 ? 31u << 10 | (wide << 12 ? 1u << 9 : 0) : 0);
    return sign | (exponent - 1023 + 15) << 10 | (wide >> 42 & 1023);
}

/* float64's bound is wider here, by what a reference in doubles itself rounds. */
static int may_differ(const struct soak_payload *p, const struct soak_expected *e,
                      int mine)
{
    return p->type == IPS_FLOAT64 && e->bound > 0 && mine;
}

static void same_verdict(const struct soak_payload *p)
{
    struct ips_payload reference = other_form(p);
    unsigned bytes = soak_bytes(p->type);
    uint64_t seeds[IPS_MAX_RANKS];
    for (unsigned r = 0; r < p->nranks; r++)
        seeds[r] = soak_rank_seed(p, r);
    for (uint64_t i = 0; i < COUNT; i++) {
        struct soak_expected e = soak_expect(p, seeds, i);
        uint64_t base = nearest(p, &e);
        for (int off = -14; off <= 15; off++, compared++) {
            uint64_t bits = off == 15   ? 0 /* also where NaN is expected */
                            : off == 14 ? base ^ (uint64_t)1 << (8 * bytes - 1)
                                        : (base + (uint64_t)(int64_t)off);
            bits &= soak_mask(8 * bytes);
            int mine = soak_right(p, &e, bits);
            int theirs = !ips_payload_check(&reference, i, 1, &bits, NULL);
            if (mine != theirs && !may_differ(p, &e, mine))
                fail(p, mine ? "taken only here" : "refused only here", i, bits);
            *(mine ? &accepted : &refused) += 1;
        }
    }
}

int main(void)
{
    for (uint32_t type = 0; type < IPS_TYPES; type++)
        for (uint32_t op = 0; op < IPS_OPS; op++)
            for (uint32_t values = 0; values < SOAK_VALUES; values++)
                for (uint32_t n = IPS_MIN_RANKS; n <= IPS_MAX_RANKS; n++) {
                    struct soak_payload p = {soak_mix(type * 1000 + op * 100 + n), n,
                                             type, op, values};
                    same_inputs(&p);
                    same_verdict(&p);
                }
    printf("%lu comparisons, %lu taken, %lu refused, %lu differ\n", compared, accepted,
           refused, failures);
    return failures || !accepted || !refused ? EXIT_FAILURE : EXIT_SUCCESS;
}
