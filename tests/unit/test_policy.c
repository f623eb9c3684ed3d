/* SPDX-License-Identifier: Apache-2.0 */
/* The policy is total, bounded and monotone, says why, and depends on its arguments only.
 */
#include "policy/policy.h"

#include <string.h>

#include "kernels/wire.h"
#include "tests/unit/check.h"

static struct ips_policy_settings wide_open(void)
{
    struct ips_policy_settings settings = ips_policy_defaults;
    settings.max_bytes = UINT64_MAX / 4;
    return settings;
}

static int proto_of(const struct ips_decision *d)
{
    return ips_variant_proto((int)d->variant);
}

static void check_sound(const struct ips_decision *d, const struct ips_policy_settings *s)
{
    CHECK(d->reason && *d->reason);
    CHECK(d->route == IPS_ROUTE_ENGINE || d->route == IPS_ROUTE_NCCL);
    if (d->route == IPS_ROUTE_NCCL)
        return;
    CHECK((int)d->variant >= 0 && d->variant < IPS_VARIANTS);
    CHECK(d->channels >= 1 && d->channels <= IPS_MAX_CHANNELS);
    CHECK(d->channels <= s->max_channels || s->max_channels == 0, "%u", d->channels);
    CHECK(d->threads >= 32 && d->threads % 32 == 0 &&
          d->threads <= ips_variant_max_threads((int)d->variant));
}

static void test_what_stays_with_nccl(void)
{
    struct ips_policy_settings s = wide_open();
    for (unsigned ranks = 0; ranks <= 70; ranks++) {
        struct ips_decision d = ips_policy_decide(&s, ranks, 8, IPS_FLOAT32, IPS_SUM);
        int taken = ranks >= IPS_MIN_RANKS && ranks <= IPS_MAX_RANKS;
        check_sound(&d, &s);
        CHECK((d.route == IPS_ROUTE_ENGINE) == taken, "%u ranks", ranks);
    }
    for (int type = -2; type < 300; type++) {
        struct ips_decision d = ips_policy_decide(&s, 4, 8, type, IPS_SUM);
        check_sound(&d, &s);
        CHECK((d.route == IPS_ROUTE_ENGINE) == (type >= 0 && type < IPS_TYPES), "%d",
              type);
        CHECK((ips_type_bytes(type) != 0) == (type >= 0 && type < IPS_TYPES), "%d", type);
        CHECK((ips_type_name(type) != NULL) == (type >= 0 && type < IPS_TYPES), "%d",
              type);
    }
    const int ops[] = {-1, 5, 6, 77, 0x7fffffff};
    for (unsigned i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct ips_decision d = ips_policy_decide(&s, 4, 8, IPS_FLOAT32, ops[i]);
        CHECK(d.route == IPS_ROUTE_NCCL && strstr(d.reason, "operation"), "%d", ops[i]);
        CHECK(!ips_op_name(ops[i]));
    }
}

/* Counts whose bytes do not fit 64 bits are never mistaken for small ones. */
static void test_overflow(void)
{
    struct ips_policy_settings s = ips_policy_defaults;
    s.max_bytes = UINT64_MAX;
    for (int type = 0; type < IPS_TYPES; type++) {
        unsigned size = ips_type_bytes(type);
        const uint64_t counts[] = {UINT64_MAX,
                                   size > 1 ? UINT64_MAX / size + 1 : UINT64_MAX,
                                   (UINT64_MAX >> 1) + 1, UINT64_MAX / size - 1};
        for (unsigned i = 0; i < 4; i++) {
            struct ips_decision d = ips_policy_decide(&s, 2, counts[i], type, IPS_SUM);
            check_sound(&d, &s);
            CHECK(d.route == IPS_ROUTE_NCCL, "type %d count %llu", type,
                  (unsigned long long)counts[i]);
        }
    }
}

/* With size, the protocol only moves towards bandwidth, and a channel is never taken away
 * within one; past max_bytes nothing comes back. The thresholds are exact. */
static void test_thresholds(unsigned ranks, int type)
{
    struct ips_policy_settings s = ips_policy_defaults;
    unsigned size = ips_type_bytes(type), channels = 0;
    int proto = -1, gone = 0;
    s.max_bytes = 8 << 20;
    for (uint64_t count = 0; count * size <= (16u << 20); count += 1 + count / 16) {
        struct ips_decision d = ips_policy_decide(&s, ranks, count, type, IPS_SUM);
        check_sound(&d, &s);
        CHECK((d.route == IPS_ROUTE_NCCL) == (count * size > s.max_bytes));
        CHECK(!gone || d.route == IPS_ROUTE_NCCL);
        gone = d.route == IPS_ROUTE_NCCL;
        if (gone)
            continue;
        int expected = count * size <= s.ll_max_bytes      ? IPS_LL
                       : count * size <= s.ll128_max_bytes ? IPS_LL128
                                                           : IPS_SIMPLE;
        CHECK(proto_of(&d) == expected, "%llu", (unsigned long long)count);
        CHECK(proto_of(&d) >= proto);
        CHECK(proto_of(&d) > proto || d.channels >= channels);
        proto = proto_of(&d);
        channels = d.channels;
    }
    CHECK(proto == IPS_SIMPLE && gone, "the whole range was seen");
}

/* By itself the engine takes small messages or none, never large ones only. */
static void test_default_range(void)
{
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++) {
        int gone = 0;
        for (uint64_t count = 1; count < UINT64_C(1) << 40; count = count * 5 / 4 + 1) {
            struct ips_decision d =
                ips_policy_decide(&ips_policy_defaults, ranks, count, IPS_INT8, IPS_SUM);
            check_sound(&d, &ips_policy_defaults);
            CHECK(!gone || d.route == IPS_ROUTE_NCCL, "%u ranks, %llu", ranks,
                  (unsigned long long)count);
            gone = d.route == IPS_ROUTE_NCCL;
        }
        CHECK(gone, "what is shown to be faster has an end");
    }
}

static void test_exact_edges(void)
{
    struct ips_policy_settings s = ips_policy_defaults;
    s.ll_max_bytes = 1000;
    s.ll128_max_bytes = 2000;
    s.max_bytes = 3000;
    const struct {
        uint64_t bytes;
        int proto; /* -1: NCCL */
    } edges[] = {{0, IPS_LL},       {1000, IPS_LL},     {1001, IPS_LL128},
                 {2000, IPS_LL128}, {2001, IPS_SIMPLE}, {3000, IPS_SIMPLE},
                 {3001, -1}};
    for (unsigned i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        struct ips_decision d =
            ips_policy_decide(&s, 2, edges[i].bytes, IPS_INT8, IPS_MAX);
        int proto = d.route == IPS_ROUTE_NCCL ? -1 : proto_of(&d);
        CHECK(proto == edges[i].proto, "%llu bytes", (unsigned long long)edges[i].bytes);
    }
}

/* By itself the engine takes what was measured to be no slower, and says how to take more. */
static void test_auto(void)
{
    struct ips_policy_settings s = ips_policy_defaults;
    CHECK(s.max_bytes == IPS_MAX_BYTES_AUTO);
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++)
        for (uint64_t count = 0; count <= 1 << 20; count += 512) {
            struct ips_decision d = ips_policy_decide(&s, ranks, count, IPS_INT8, IPS_SUM);
            int taken = count <= (ranks == 2 ? 4096u : 0u);
            CHECK((d.route == IPS_ROUTE_ENGINE) == taken, "%u ranks, %llu", ranks,
                  (unsigned long long)count);
            CHECK(taken || strstr(d.reason, "IPCSHIM_MAX_BYTES"));
        }
}

static void test_forced(void)
{
    struct ips_policy_settings s = wide_open();
    for (int proto = 0; proto < IPS_PROTOS; proto++)
        for (uint64_t count = 0; count < (1u << 30); count = count * 3 + 1) {
            s.proto = proto;
            struct ips_decision d = ips_policy_decide(&s, 8, count, IPS_FLOAT32, IPS_SUM);
            check_sound(&d, &s);
            CHECK(d.route == IPS_ROUTE_ENGINE && proto_of(&d) == proto);
            CHECK(strstr(d.reason, "IPCSHIM_PROTO"));
        }
    s.max_bytes = 100; /* a forced protocol does not widen what is taken */
    struct ips_decision d = ips_policy_decide(&s, 8, 26, IPS_FLOAT32, IPS_SUM);
    CHECK(d.route == IPS_ROUTE_NCCL);
}

static void test_channels(void)
{
    struct ips_policy_settings s = wide_open();
    for (unsigned most = 1; most <= IPS_MAX_CHANNELS; most++)
        for (int proto = 0; proto < IPS_PROTOS; proto++) {
            s.max_channels = most;
            s.proto = proto;
            struct ips_decision small = ips_policy_decide(&s, 2, 1, IPS_FLOAT32, IPS_SUM);
            struct ips_decision large =
                ips_policy_decide(&s, 2, 1u << 30, IPS_FLOAT32, IPS_SUM);
            CHECK(small.channels == 1 && large.channels == most);
        }
}

/* Settings of another version of the shim, or torn ones, must not lead out of bounds. */
static void test_wild_settings(void)
{
    for (uint32_t channels = 0; channels < 40; channels += 13)
        for (int32_t proto = -3; proto < 9; proto++) {
            struct ips_policy_settings s = {
                .proto = proto, .max_channels = channels, .max_bytes = UINT64_MAX};
            struct ips_decision d = ips_policy_decide(&s, 3, 1 << 22, IPS_INT64, IPS_AVG);
            check_sound(&d, &s);
        }
}

static void test_pure(void)
{
    struct ips_policy_settings a = ips_policy_defaults, b;
    memcpy(&b, &a, sizeof b);
    for (unsigned ranks = 0; ranks < 10; ranks++)
        for (uint64_t count = 0; count < 1 << 20; count = count * 2 + 1)
            for (int type = 0; type < IPS_TYPES; type++) {
                struct ips_decision x =
                    ips_policy_decide(&a, ranks, count, type, IPS_MIN);
                struct ips_decision y =
                    ips_policy_decide(&b, ranks, count, type, IPS_MIN);
                CHECK(x.route == y.route && x.reason == y.reason);
                CHECK(x.route == IPS_ROUTE_NCCL ||
                      (x.variant == y.variant && x.channels == y.channels &&
                       x.threads == y.threads));
            }
    CHECK(!memcmp(&a, &ips_policy_defaults, sizeof a), "settings are not written");
}

int main(void)
{
    test_what_stays_with_nccl();
    test_overflow();
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++)
        for (int type = 0; type < IPS_TYPES; type++)
            test_thresholds(ranks, type);
    test_default_range();
    test_exact_edges();
    test_auto();
    test_forced();
    test_channels();
    test_wild_settings();
    test_pure();
    return check_result();
}
