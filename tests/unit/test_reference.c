/* SPDX-License-Identifier: Apache-2.0 */
/* The reference that all other tests rely on: it accepts results rounded after every step
 * in any order, and notices a flipped bit, a missing rank, stale data and the wrong zero.
 */
#include "tools/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy/policy.h"
#include "tests/unit/check.h"

#define COUNT 500

/* float32 and float64, the two formats that C adds with one rounding a step. */
static void reduce(const struct ips_payload *p, void *out, unsigned first)
{
    double wide[COUNT], total[COUNT];
    float narrow[COUNT];
    for (unsigned k = 0; k < p->nranks; k++) {
        unsigned rank = (first + k) % p->nranks;
        ips_payload_fill(p, rank, COUNT, p->type == IPS_FLOAT32 ? (void *)narrow : wide);
        for (unsigned i = 0; i < COUNT; i++) {
            double x = p->type == IPS_FLOAT32 ? narrow[i] : wide[i];
            if (p->op == IPS_AVG)
                x = p->type == IPS_FLOAT32 ? (float)x * (1.0f / (float)p->nranks)
                                           : x * (1.0 / p->nranks);
            double y = k == 0              ? x
                       : p->op == IPS_PROD ? total[i] * x
                       : p->op == IPS_MAX  ? fmax(total[i], x)
                       : p->op == IPS_MIN  ? fmin(total[i], x)
                                           : total[i] + x;
            total[i] = p->type == IPS_FLOAT32 ? (float)y : y;
        }
    }
    for (unsigned i = 0; i < COUNT; i++)
        narrow[i] = (float)total[i];
    memcpy(out, p->type == IPS_FLOAT32 ? (void *)narrow : total,
           COUNT * ips_type_bytes(p->type));
}

static void test_accepts_any_order(void)
{
    unsigned char out[COUNT * 8];
    struct ips_mismatch first;
    for (unsigned n = 2; n <= IPS_MAX_RANKS; n++)
        for (int type = IPS_FLOAT32; type <= IPS_FLOAT64; type++)
            for (int op = 0; op < IPS_OPS; op++)
                for (int values = 0; values < IPS_VALUES_KINDS; values++)
                    for (unsigned start = 0; start < n; start++) {
                        struct ips_payload p = {n * 100 + start, n, (enum ips_type)type,
                                                (enum ips_op)op, (enum ips_values)values};
                        reduce(&p, out, start);
                        uint64_t wrong = ips_payload_check(&p, 0, COUNT, out, &first);
                        CHECK(!wrong, "%s %s n %u values %d: %llu, first %llu: %g not %g",
                              ips_type_name(type), ips_op_name(op), n, values,
                              (unsigned long long)wrong, (unsigned long long)first.index,
                              first.got, first.wanted);
                    }
}

/* Small integers have an obvious right answer. */
static void test_integers(void)
{
    struct ips_mismatch first;
    for (int type = IPS_INT8; type <= IPS_UINT64; type++)
        for (int op = 0; op < IPS_OPS; op++) {
            struct ips_payload p = {7, 3, (enum ips_type)type, (enum ips_op)op, 0};
            unsigned size = ips_type_bytes(type);
            int64_t x[3] = {0}, y;
            for (unsigned r = 0; r < 3; r++) {
                unsigned char bytes[8] = {0};
                ips_payload_fill(&p, r, 1, bytes);
                memcpy(&x[r], bytes, 8);
                int is_signed = type == IPS_INT8 || type == IPS_INT32;
                if (is_signed)
                    x[r] =
                        (int64_t)((uint64_t)x[r] << (64 - 8 * size)) >> (64 - 8 * size);
            }
            if (type == IPS_UINT64 && op > IPS_PROD)
                continue; /* needs unsigned comparisons: covered by the others */
            y = x[0];
            for (unsigned r = 1; r < 3; r++) {
                if (op == IPS_SUM || op == IPS_AVG)
                    y = (int64_t)((uint64_t)y + (uint64_t)x[r]);
                else if (op == IPS_PROD)
                    y = (int64_t)((uint64_t)y * (uint64_t)x[r]);
                else if (op == IPS_MAX ? x[r] > y : x[r] < y)
                    y = x[r];
            }
            if (op == IPS_AVG) {
                int is_signed =
                    type == IPS_INT8 || type == IPS_INT32 || type == IPS_INT64;
                unsigned shift = 64 - 8 * size;
                y = is_signed ? ((int64_t)((uint64_t)y << shift) >> shift) / 3
                              : (int64_t)(((uint64_t)y << shift >> shift) / 3);
            }
            CHECK(!ips_payload_check(&p, 0, 1, &y, &first),
                  "%s %s: got %lld, reference %g", ips_type_name(type), ips_op_name(op),
                  (long long)y, first.wanted);
            y ^= 1;
            CHECK(ips_payload_check(&p, 0, 1, &y, &first) == 1, "%s %s",
                  ips_type_name(type), ips_op_name(op));
        }
}

/* An exact sum of a type, made by adding ranks' exact values as float32. */
static void test_notices(void)
{
    struct ips_payload p = {5, 4, IPS_FLOAT32, IPS_SUM, IPS_VALUES_EXACT}, stale = p,
                       less = p;
    unsigned char out[COUNT * 8];
    struct ips_mismatch first;
    reduce(&p, out, 0);
    for (unsigned bit = 0; bit < 32; bit++) {
        unsigned at = (bit * 37 % COUNT) * 4;
        float before, after;
        memcpy(&before, out + at, 4);
        out[at + bit / 8] ^= (unsigned char)(1 << bit % 8);
        memcpy(&after, out + at, 4);
        CHECK(ips_payload_check(&p, 0, COUNT, out, &first) == 1, "bit %u: %g, %g", bit,
              (double)before, (double)after);
        CHECK(first.index == at / 4);
        out[at + bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    CHECK(ips_payload_check(&p, 0, COUNT, out, &first) == 0);
    CHECK(ips_payload_check(&p, 1, COUNT - 1, out, &first) > COUNT / 2, "shifted by one");
    stale.seed++;
    CHECK(ips_payload_check(&stale, 0, COUNT, out, &first) > COUNT / 2, "other data");
    less.nranks = 3;
    CHECK(ips_payload_check(&less, 0, COUNT, out, &first) > COUNT / 2, "a rank too many");
    p.values = stale.values = IPS_VALUES_RANDOM;
    for (unsigned n = 2; n <= IPS_MAX_RANKS; n++) {
        p.nranks = n;
        stale.nranks = n - 1;
        reduce(&stale, out, 0);
        stale.seed = p.seed;
        CHECK(n == 2 || ips_payload_check(&p, 0, COUNT, out, &first) > COUNT / 2, "n %u",
              n);
    }
}

static void test_zero_signs(void)
{
    struct ips_payload p = {3, 2, IPS_FLOAT32, IPS_SUM, IPS_VALUES_SPECIAL};
    unsigned char out[COUNT * 8];
    struct ips_mismatch first;
    unsigned zeros = 0;
    reduce(&p, out, 0);
    for (unsigned i = 0; i < COUNT; i++) {
        float x;
        memcpy(&x, out + 4 * i, 4);
        if (x != 0)
            continue;
        zeros++;
        out[4 * i + 3] ^= 0x80;
        CHECK(ips_payload_check(&p, 0, COUNT, out, &first) == 1);
        out[4 * i + 3] ^= 0x80;
    }
    CHECK(zeros > 10);
}

/* Half precision: the widest and narrowest mistakes that the bound must tell apart. */
static void test_half_bound(void)
{
    struct ips_payload p = {11, 2, IPS_FLOAT16, IPS_SUM, IPS_VALUES_EXACT};
    uint16_t a[COUNT], b[COUNT], out[COUNT];
    struct ips_mismatch first;
    for (int type = IPS_FLOAT16; type <= IPS_BFLOAT16;
         type += IPS_BFLOAT16 - IPS_FLOAT16) {
        p.type = (enum ips_type)type;
        p.op = IPS_MAX; /* of equal ranks' data: one input itself */
        ips_payload_fill(&p, 0, COUNT, a);
        ips_payload_fill(&p, 1, COUNT, b);
        CHECK(memcmp(a, b, sizeof a) != 0, "ranks have different data");
        for (unsigned i = 0; i < COUNT; i++) {
            int16_t x = (int16_t)a[i], y = (int16_t)b[i]; /* sign and magnitude order */
            int less = x < 0 && y < 0 ? x > y : x < y;
            out[i] = less ? b[i] : a[i];
        }
        CHECK(!ips_payload_check(&p, 0, COUNT, out, &first), "element %llu",
              (unsigned long long)first.index);
        out[9] ^= 1;
        CHECK(ips_payload_check(&p, 0, COUNT, out, &first) == 1);
    }
}

static void test_hash(void)
{
    unsigned char data[64] = {0};
    for (unsigned length = 0; length < 64; length++) {
        uint64_t hash = ips_hash(data, length);
        CHECK(hash != ips_hash(data, length + 1));
        for (unsigned bit = 0; bit < 8 * length; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            CHECK(hash != ips_hash(data, length));
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
}

int main(void)
{
    test_accepts_any_order();
    test_integers();
    test_notices();
    test_zero_signs();
    test_half_bound();
    test_hash();
    return check_result();
}
