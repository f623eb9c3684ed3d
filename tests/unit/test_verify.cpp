/* SPDX-License-Identifier: Apache-2.0 */
/* The comparison of two results of one AllReduce (kernels/verify.h): it accepts whatever
 * two orders and precisions can make of any inputs, and rejects what differs by more. */
#include <stdlib.h>

#include <vector>

#include "kernels/wire.h"

#include "kernels/mem.h"

#include "kernels/names.h"
#include "kernels/verify.h"

#include "tests/unit/check.h"
#include "tests/unit/no_lanes.h"

namespace
{

uint64_t state = 1;

uint64_t draw(void)
{
    uint64_t x = state += 0x9e3779b97f4a7c15ull;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

uint64_t below(uint64_t limit)
{
    return draw() % limit;
}

/* Of a type: fraction and exponent bits, and the bits of all. */
struct shape {
    unsigned bits, fraction, bias;
};

struct shape shape_of(uint32_t type)
{
    switch (type) {
    case IPS_FLOAT16:
        return {16, 10, 15};
    case IPS_BFLOAT16:
        return {16, 7, 127};
    case IPS_FLOAT32:
        return {32, 23, 127};
    case IPS_FLOAT64:
        return {64, 52, 1023};
    default:
        return {8 * ips_element_bytes((int)type), 0, 0};
    }
}

uint64_t mask_of(uint32_t type)
{
    const unsigned bits = shape_of(type).bits;
    return bits == 64 ? ~0ull : (1ull << bits) - 1;
}

/* A number with any sign and fraction, and an exponent field of that value. */
uint64_t number(uint32_t type, uint64_t exponent)
{
    const struct shape s = shape_of(type);
    return (draw() & 1) << (s.bits - 1) | exponent << s.fraction |
           (draw() & ((1ull << s.fraction) - 1));
}

uint64_t special(uint32_t type)
{
    const struct shape s = shape_of(type);
    const uint64_t sign = (draw() & 1) << (s.bits - 1),
                   one = (uint64_t)s.bias << s.fraction,
                   infinite = (2ull * s.bias + 1) << s.fraction;
    const uint64_t values[] = {
        0, one, infinite, infinite | 1ull << (s.fraction - 1), infinite - 1, 1};
    return sign | values[below(6)];
}

enum kind { PLAIN, WIDE, CANCELLING, SUBNORMAL, HUGE, ANY, SPECIAL, NEAR_ONE, KINDS };

uint64_t input(uint32_t type, unsigned kind, uint64_t before)
{
    const struct shape s = shape_of(type);
    const uint64_t sign = 1ull << (s.bits - 1);
    if (!s.fraction)
        return kind == SPECIAL ? (sign - below(2)) & mask_of(type)
                               : draw() & mask_of(type);
    switch (kind) {
    case PLAIN:
        return number(type, s.bias - below(4));
    case WIDE:
        return number(type, s.bias - 7 + below(15));
    case CANCELLING: /* all but the last bits of the one before */
        return draw() & 1 ? (before ^ sign ^ (draw() & 3))
                          : number(type, s.bias - below(2));
    case SUBNORMAL:
        return number(type, below(3));
    case HUGE:
        return number(type, 2 * s.bias - below(3));
    case SPECIAL:
        return below(3) ? number(type, s.bias - below(2)) : special(type);
    case NEAR_ONE:
        return number(type, s.bias - below(2));
    default: {
        uint64_t raw = draw() & mask_of(type);
        const uint64_t infinite = (2ull * s.bias + 1) << s.fraction;
        /* A signalling NaN is no number that arithmetic gives. */
        return (raw & infinite) == infinite ? raw | 1ull << (s.fraction - 1) : raw;
    }
    }
}

struct call {
    uint32_t type, op, n;
    uint64_t in[IPS_MAX_RANKS];
};

uint64_t one(struct ips_v4 v, uint32_t type)
{
    return ips_low(v) & mask_of(type);
}

uint64_t join(const struct call *c, uint64_t a, uint64_t b)
{
    return one(ips_reduce(ips_pair(a, 0), ips_pair(b, 0), c->type, c->op), c->type);
}

uint64_t enter(const struct call *c, uint64_t raw)
{
    if (c->op != IPS_AVG || !ips_is_float(c->type))
        return raw;
    return one(ips_scale(ips_pair(raw, 0), c->type, c->n), c->type);
}

uint64_t leave(const struct call *c, uint64_t raw)
{
    if (c->op != IPS_AVG || ips_is_float(c->type))
        return raw;
    return one(ips_divide_by(ips_pair(raw, 0), c->type, c->n), c->type);
}

void shuffle(unsigned *order, unsigned n)
{
    for (unsigned i = n; i > 1; i--) {
        const unsigned j = (unsigned)below(i), t = order[i - 1];
        order[i - 1] = order[j];
        order[j] = t;
    }
}

/* One after the other, from some rank on, as the ring does. */
uint64_t chain(const struct call *c, unsigned start)
{
    uint64_t sum = enter(c, c->in[start % c->n]);
    for (unsigned i = 1; i < c->n; i++)
        sum = join(c, sum, enter(c, c->in[(start + i) % c->n]));
    return leave(c, sum);
}

/* Any pairing. */
uint64_t tree(const struct call *c)
{
    unsigned order[IPS_MAX_RANKS];
    std::vector<uint64_t> parts;
    for (unsigned i = 0; i < c->n; i++)
        order[i] = i;
    shuffle(order, c->n);
    for (unsigned i = 0; i < c->n; i++)
        parts.push_back(enter(c, c->in[order[i]]));
    while (parts.size() > 1) {
        const size_t at = below(parts.size() - 1);
        parts[at] = join(c, parts[at], parts[at + 1]);
        parts.erase(parts.begin() + (long)at + 1);
    }
    return leave(c, parts[0]);
}

uint64_t from_wide(uint32_t type, long double value)
{
    switch (type) {
    case IPS_FLOAT16:
        return ips_as_float16::put((float)value);
    case IPS_BFLOAT16:
        return ips_as_bfloat16::put((float)value);
    case IPS_FLOAT32:
        return ips_as_float32::put((float)value);
    default:
        return ips_as_float64::put((double)value);
    }
}

/* Rounded at the end only, or, for the 16-bit types, to float on the way. */
uint64_t wide(const struct call *c)
{
    long double sum = ips_verify_number(c->in[0], c->type);
    for (unsigned i = 1; i < c->n; i++) {
        const long double next = ips_verify_number(c->in[i], c->type);
        sum = c->op == IPS_PROD ? sum * next : sum + next;
        if (shape_of(c->type).bits == 16)
            sum = (float)sum;
    }
    return from_wide(c->type, c->op == IPS_AVG ? sum / c->n : sum);
}

double weight_of(const struct call *c)
{
    if (!ips_is_float(c->type))
        return 0;
    double exact = ips_verify_weight(c->in[0], c->type, c->op);
    float narrow = (float)exact;
    for (unsigned i = 1; i < c->n; i++) {
        const double next = ips_verify_weight(c->in[i], c->type, c->op);
        exact += next;
        narrow += (float)next;
    }
    return c->type == IPS_FLOAT64 ? exact : narrow;
}

void make(struct call *c, uint32_t type, uint32_t op, unsigned kind)
{
    *c = {type, op, (uint32_t)(2 + below(7)), {0}};
    for (unsigned i = 0; i < c->n; i++) {
        c->in[i] = input(type, kind, i ? c->in[i - 1] : 0);
        if (kind == WIDE && below(8) == 0)
            c->in[i] = 0;
    }
    unsigned order[IPS_MAX_RANKS];
    for (unsigned i = 0; i < c->n; i++)
        order[i] = i;
    shuffle(order, c->n);
    struct call mixed = *c;
    for (unsigned i = 0; i < c->n; i++)
        c->in[i] = mixed.in[order[i]];
}

bool agree(const struct call *c, uint64_t a, uint64_t b)
{
    return ips_verify_agree(a, b, weight_of(c), c->type, c->op, c->n);
}

std::vector<uint64_t> results(const struct call *c)
{
    std::vector<uint64_t> all = {chain(c, 0), chain(c, (unsigned)below(c->n)), tree(c),
                                 tree(c)};
    if (ips_is_float(c->type) && c->op != IPS_MAX && c->op != IPS_MIN)
        all.push_back(wide(c));
    return all;
}

void test_no_false_alarm(unsigned rounds)
{
    for (uint32_t type = 0; type < IPS_TYPES; type++)
        for (uint32_t op = 0; op < IPS_OPS; op++)
            for (unsigned kind = 0; kind < KINDS; kind++)
                for (unsigned i = 0; i < rounds; i++) {
                    struct call c;
                    make(&c, type, op, kind);
                    const std::vector<uint64_t> all = results(&c);
                    for (uint64_t a : all)
                        for (uint64_t b : all)
                            CHECK(agree(&c, a, b),
                                  "%s %s of %u, kind %u: 0x%llx, 0x%llx, weight %g",
                                  ips_type_name((int)type), ips_op_name((int)op), c.n,
                                  kind, (unsigned long long)a, (unsigned long long)b,
                                  weight_of(&c));
                }
}

/* What may be missed of a sum: four times what two correct results can differ. */
double slack(const struct call *c)
{
    return 4 * (2.0 * (c->n + 1) * ips_traits_of(c->type).roundoff * 16 * weight_of(c) /
                    (c->op == IPS_AVG ? c->n : 1) +
                c->n * ips_traits_of(c->type).tiny);
}

/* One rank's input is left out, or another rank's taken twice. */
void test_lost_input(void)
{
    unsigned tried = 0, exempt = 0;
    for (uint32_t type = 0; type < IPS_TYPES; type++)
        for (unsigned i = 0; i < 2000; i++) {
            struct call c, lost;
            make(&c, type, i % 2 ? IPS_SUM : IPS_AVG, PLAIN);
            lost = c;
            const unsigned rank = (unsigned)below(c.n), other = (rank + 1) % c.n;
            lost.in[rank] = i % 3 ? 0 : c.in[other];
            const uint64_t good = chain(&c, 0), bad = chain(&lost, 0);
            tried++;
            if (good == bad ||
                (ips_is_float(type) && fabs(ips_verify_number(good, type) -
                                            ips_verify_number(bad, type)) <= slack(&c))) {
                exempt++;
                continue;
            }
            CHECK(!agree(&c, bad, good), "%s: 0x%llx for 0x%llx passes",
                  ips_type_name((int)type), (unsigned long long)bad,
                  (unsigned long long)good);
        }
    CHECK(exempt < tried / 4, "%u of %u lost inputs are within the bound", exempt, tried);
}

/* Single flipped bits of the upper half of an element, and all of an integer. */
void test_flipped_bit(void)
{
    for (uint32_t type = 0; type < IPS_TYPES; type++)
        for (uint32_t op = 0; op < IPS_OPS; op++)
            for (unsigned i = 0; i < 300; i++) {
                struct call c;
                make(&c, type, op, NEAR_ONE);
                const struct shape s = shape_of(type);
                const uint64_t good = chain(&c, 0);
                /* 16-bit floats: from the exponent on; a flip into a sum of nearly 0 may
                 * stay within its bound. */
                const unsigned low =
                    s.fraction ? s.bits == 16 ? s.fraction : s.bits / 2 + 7 : 0;
                const uint64_t bad = good ^ 1ull << (low + below(s.bits - low));
                if (s.fraction && (op == IPS_SUM || op == IPS_AVG) &&
                    fabs(ips_verify_number(good, type) - ips_verify_number(bad, type)) <=
                        slack(&c))
                    continue;
                if (s.fraction && ips_verify_number(good, type) == 0)
                    continue;
                CHECK(!agree(&c, bad, good), "%s %s: 0x%llx for 0x%llx passes",
                      ips_type_name((int)type), ips_op_name((int)op),
                      (unsigned long long)bad, (unsigned long long)good);
            }
}

/* What is certain of results that are no numbers. */
void test_special(void)
{
    const uint32_t type = IPS_FLOAT32, nan = 0x7fc00000, inf = 0x7f800000,
                   minus = 1u << 31, one_bits = 0x3f800000;
    const struct {
        uint32_t op;
        double weight;
        uint32_t a, b;
        bool agrees;
    } cases[] = {
        {IPS_SUM, NAN, nan, nan | minus, true},
        {IPS_SUM, NAN, one_bits, nan, false},
        {IPS_SUM, NAN, inf, nan, false},
        {IPS_SUM, INFINITY, inf, nan, true},
        {IPS_SUM, INFINITY, inf, inf | minus, false},
        {IPS_SUM, INFINITY, inf, one_bits, false},
        {IPS_SUM, 1, inf, one_bits, false},
        {IPS_SUM, 1, nan, one_bits, false},
        {IPS_SUM, 0x1p125, inf, one_bits, true},
        {IPS_SUM, 0, 0, minus, true},
        {IPS_PROD, NAN, nan, 0, false},
        {IPS_PROD, INFINITY, nan, inf, true},
        {IPS_PROD, IPS_VERIFY_ZERO + 3, 0, minus, true},
        {IPS_PROD, IPS_VERIFY_ZERO + 3, 0, nan, false},
        {IPS_PROD, IPS_VERIFY_ZERO + 300, 0, nan, true},
        {IPS_PROD, IPS_VERIFY_ZERO + 300, 0, one_bits, false},
        {IPS_PROD, 300, inf, one_bits, true},
        {IPS_PROD, 300, minus | one_bits, inf, false},
        {IPS_PROD, 3, inf, one_bits, false},
        {IPS_PROD, 3, nan, one_bits, false},
        {IPS_MAX, 0, 0, minus, true},
        {IPS_MAX, 0, nan, nan | minus, true},
        {IPS_MAX, 0, nan, one_bits, false},
        {IPS_MIN, 0, one_bits, one_bits + 1, false},
    };
    for (const auto &c : cases) {
        CHECK(ips_verify_agree(c.a, c.b, c.weight, type, c.op, 2) == c.agrees,
              "%s 0x%x 0x%x weight %g", ips_op_name((int)c.op), c.a, c.b, c.weight);
        CHECK(ips_verify_agree(c.b, c.a, c.weight, type, c.op, 2) == c.agrees,
              "%s 0x%x 0x%x weight %g", ips_op_name((int)c.op), c.b, c.a, c.weight);
    }
}

} // namespace

int main(int argc, char **argv)
{
    test_no_false_alarm(argc > 1 ? (unsigned)atoi(argv[1]) : 2000);
    test_lost_input();
    test_flipped_bit();
    test_special();
    return check_result();
}
