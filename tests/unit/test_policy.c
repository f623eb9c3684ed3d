/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are valid whatever they are made from, take what was asked for or what wins, and
 * say why; what they say of a call depends on its bytes, type and operation only. */
#include "policy/plan.h"

#include <string.h>

#include "kernels/wire.h"
#include "tests/unit/check.h"

static const enum ips_link all_links[] = {IPS_LINK_SAME_GPU, IPS_LINK_PCIE,
                                          IPS_LINK_NVLINK, IPS_LINK_HOST};
#define EACH_LINK(link) \
    for (unsigned i_ = 0; i_ < IPS_LINKS && ((link) = all_links[i_], 1); i_++)

static struct ips_policy_settings asking(uint64_t max_bytes)
{
    struct ips_policy_settings settings = ips_policy_defaults;
    settings.max_bytes = max_bytes;
    return settings;
}

static struct ips_policy_place place_of(unsigned ranks, enum ips_link link)
{
    return (struct ips_policy_place){.ranks = ranks,
                                     .link = link,
                                     .most_channels = link == IPS_LINK_HOST
                                                          ? IPS_HOST_CHANNELS
                                                          : IPS_MAX_CHANNELS};
}

static struct ips_policy_plan plan_at(const struct ips_policy_settings *s,
                                      const struct ips_policy_place *place,
                                      const struct ips_tuned *tuned)
{
    struct ips_policy_plan plan;
    ips_policy_plan_make(s, place, tuned, &plan);
    CHECK(ips_policy_plan_valid(&plan, sizeof plan, place->ranks, place->most_channels));
    for (unsigned i = 0; i < plan.count; i++)
        CHECK(plan.row[i].variant == IPS_PLAN_NCCL ||
              plan.row[i].channels <= (s->max_channels ? s->max_channels : 1));
    return plan;
}

static struct ips_policy_plan plan_of(const struct ips_policy_settings *s, unsigned ranks,
                                      enum ips_link link, const struct ips_tuned *tuned)
{
    const struct ips_policy_place place = place_of(ranks, link);
    return plan_at(s, &place, tuned);
}

static struct ips_decision of_bytes(const struct ips_policy_plan *plan, uint64_t bytes)
{
    struct ips_decision d = ips_policy_decide(plan, bytes, IPS_INT8, IPS_SUM);
    CHECK(d.reason && *d.reason);
    return d;
}

static int taken(const struct ips_policy_plan *plan, uint64_t bytes)
{
    return of_bytes(plan, bytes).route == IPS_ROUTE_ENGINE;
}

/* An explicit limit takes all sizes up to it, exactly. */
static void test_asked(void)
{
    enum ips_link link;
    EACH_LINK(link)
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++)
        for (uint64_t most = 1; most < UINT64_C(1) << 40; most = most * 3 + 1) {
            const struct ips_policy_settings s = asking(most);
            const struct ips_policy_plan plan = plan_of(&s, ranks, link, NULL);
            CHECK(ips_policy_plan_takes_some(&plan));
            for (uint64_t bytes = 0; bytes < most; bytes = bytes * 2 + 1)
                CHECK(taken(&plan, bytes), "%llu", (unsigned long long)bytes);
            CHECK(taken(&plan, most) && !taken(&plan, most + 1));
            CHECK(strstr(of_bytes(&plan, most + 1).reason, "IPCSHIM_MAX_BYTES"));
        }
    const struct ips_policy_settings none = asking(0);
    const struct ips_policy_plan plan = plan_of(&none, 2, IPS_LINK_PCIE, NULL);
    CHECK(!ips_policy_plan_takes_some(&plan) && !taken(&plan, 1));
}

static void test_ranks(void)
{
    const struct ips_policy_settings s = asking(UINT64_C(1) << 60);
    for (unsigned ranks = 0; ranks <= 70; ranks++) {
        const struct ips_policy_plan plan = plan_of(&s, ranks, IPS_LINK_PCIE, NULL);
        const int some = ranks >= IPS_MIN_RANKS && ranks <= IPS_MAX_RANKS;
        CHECK(taken(&plan, 8) == some && ips_policy_plan_takes_some(&plan) == some);
        CHECK(some || strstr(of_bytes(&plan, 8).reason, "rank"));
    }
}

/* What the engine does not know stays with NCCL; counts whose bytes do not fit 64 bits
 * are never mistaken for small ones. */
static void test_types_and_counts(void)
{
    const struct ips_policy_settings s = asking(UINT64_C(1) << 62);
    const struct ips_policy_plan plan = plan_of(&s, 4, IPS_LINK_PCIE, NULL);
    for (int type = -2; type < 300; type++) {
        const int known = type >= 0 && type < IPS_TYPES;
        struct ips_decision d = ips_policy_decide(&plan, 8, type, IPS_SUM);
        CHECK((d.route == IPS_ROUTE_ENGINE) == known, "%d", type);
        CHECK((ips_type_bytes(type) != 0) == known &&
              (ips_type_name(type) != NULL) == known);
    }
    const int ops[] = {-1, 5, 6, 77, 0x7fffffff};
    for (unsigned i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct ips_decision d = ips_policy_decide(&plan, 8, IPS_FLOAT32, ops[i]);
        CHECK(d.route == IPS_ROUTE_NCCL && strstr(d.reason, "operation"), "%d", ops[i]);
    }
    for (int type = 0; type < IPS_TYPES; type++) {
        const unsigned size = ips_type_bytes(type);
        const uint64_t counts[] = {UINT64_MAX, UINT64_MAX / size, UINT64_MAX / size - 1,
                                   (UINT64_MAX >> 1) + 1};
        for (unsigned i = 0; i < 4; i++)
            CHECK(ips_policy_decide(&plan, counts[i], type, IPS_SUM).route ==
                  IPS_ROUTE_NCCL);
    }
}

/* A forced algorithm or protocol is taken at all sizes, whatever NCCL takes; a limit
 * holds. */
static void test_forced(void)
{
    enum ips_link link;
    EACH_LINK(link)
    for (int algo = IPS_ALGO_AUTO; algo < IPS_ALGOS; algo++)
        for (int proto = IPS_PROTO_AUTO; proto < IPS_PROTOS; proto++) {
            struct ips_policy_settings s = ips_policy_defaults;
            s.algo = algo;
            s.proto = proto;
            if (algo < 0 && proto < 0)
                continue;
            struct ips_policy_plan plan = plan_of(&s, 6, link, NULL);
            const int direct = algo == IPS_ONESHOT || algo == IPS_TWOSHOT;
            const int wanted = direct && proto == IPS_SIMPLE ? IPS_LL128
                               : algo == IPS_HIERARCHICAL    ? IPS_SIMPLE
                                                             : proto;
            CHECK(plan.group == (algo == IPS_HIERARCHICAL ? 3 : 0), "halves");
            for (uint64_t bytes = 0; bytes < UINT64_C(1) << 50; bytes = bytes * 3 + 1) {
                struct ips_decision d = of_bytes(&plan, bytes);
                const int variant = (int)d.variant;
                CHECK(d.route == IPS_ROUTE_ENGINE);
                CHECK(algo < 0 || ips_variant_algo(variant) == algo);
                CHECK(proto < 0 || ips_variant_proto(variant) == wanted);
                CHECK(strstr(d.reason, proto < 0 ? "IPCSHIM_ALGO" : "IPCSHIM_PROTO"));
            }
            s.max_bytes = 100;
            plan = plan_of(&s, 6, link, NULL);
            CHECK(taken(&plan, 100) && !taken(&plan, 101));
        }
}

/* By itself, without measurements: only what wins by the model, launched and replayed,
 * and nothing of what was never shown. */
static void test_by_model(void)
{
    enum ips_link link;
    EACH_LINK(link)
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++) {
        const struct ips_policy_plan plan =
            plan_of(&ips_policy_defaults, ranks, link, NULL);
        const struct ips_plan_input input = {&ips_policy_defaults, place_of(ranks, link),
                                             NULL};
        for (unsigned i = 0; i < plan.count; i++) {
            const struct ips_plan_row *row = &plan.row[i];
            CHECK(row->why == IPS_WHY_MODEL || row->why == IPS_WHY_NOT_MODEL);
            if (row->variant == IPS_PLAN_NCCL || link != IPS_LINK_HOST)
                continue;
            CHECK(ips_plan_choose(&input, row->up_to_bytes).wins);
        }
        CHECK(!taken(&plan, UINT64_C(1) << 40));
    }
}

static void test_channels(void)
{
    for (unsigned most = 0; most <= IPS_MAX_CHANNELS + 3; most++)
        for (int proto = 0; proto < IPS_PROTOS; proto++) {
            struct ips_policy_settings s = asking(UINT64_C(1) << 60);
            s.max_channels = most;
            s.proto = proto;
            const struct ips_policy_plan plan = plan_of(&s, 2, IPS_LINK_SAME_GPU, NULL);
            const unsigned bound = most > IPS_MAX_CHANNELS ? IPS_MAX_CHANNELS
                                   : most                  ? most
                                                           : 1;
            const unsigned large = of_bytes(&plan, UINT64_C(1) << 30).channels;
            CHECK(large <= bound && large >= (bound + 1) / 2, "%u of %u", large, bound);
        }
}

/* Settings of another version of the shim, or torn ones, must not lead out of bounds. */
static void test_wild_settings(void)
{
    for (uint32_t channels = 0; channels < 400; channels += 133)
        for (int32_t proto = -3; proto < 9; proto++)
            for (int32_t algo = -3; algo < 9; algo++) {
                struct ips_policy_settings s = {.algo = algo,
                                                .proto = proto,
                                                .max_channels = channels,
                                                .max_bytes = UINT64_MAX - 1};
                const unsigned ranks = algo & 1 ? 3 : 4;
                const struct ips_policy_place place = {ranks, IPS_LINK_NVLINK, 4,
                                                       (unsigned)(proto + 3), -1e300};
                struct ips_policy_plan plan;
                ips_policy_plan_make(&s, &place, NULL, &plan);
                CHECK(ips_policy_plan_valid(&plan, sizeof plan, ranks, 4));
            }
}

/* --- measurements --- */

static struct ips_tuned tuned;

static void measured(uint64_t bytes, enum ips_variant variant, unsigned channels,
                     double eager, double graph)
{
    tuned.row[tuned.count++] = (struct ips_tuned_row){
        .bytes = bytes, .candidate = {variant, channels, 256}, .times = {{eager, graph}}};
}

static void measured_nccl(uint64_t bytes, double eager, double graph)
{
    tuned.row[tuned.count++] =
        (struct ips_tuned_row){.bytes = bytes, .nccl = 1, .times = {{eager, graph}}};
}

static void fill_tuned(void)
{
    tuned = (struct ips_tuned){.ranks = 4, .link = IPS_LINK_PCIE};
    measured_nccl(1024, 10, 8); /* the second of the engine's is better, and wins */
    measured(1024, IPS_ONESHOT_LL, 2, 9, 7);
    measured(1024, IPS_ONESHOT_LL, 1, 6, 4);
    measured_nccl(4096, 10, 8); /* wins launched, not replayed */
    measured(4096, IPS_TWOSHOT_LL, 4, 6, 8);
    measured_nccl(65536, 20, 18); /* wins again */
    measured(65536, IPS_TWOSHOT_LL128, 8, 15, 14);
    measured_nccl(1 << 20, 90, 88); /* within what is noise */
    measured(1 << 20, IPS_RING_SIMPLE, 16, 89, 87);
}

static void test_tuned(void)
{
    fill_tuned();
    const struct ips_policy_plan plan =
        plan_of(&ips_policy_defaults, 4, IPS_LINK_PCIE, &tuned);
    struct ips_decision d = of_bytes(&plan, 8);
    CHECK(d.route == IPS_ROUTE_ENGINE && d.variant == IPS_ONESHOT_LL && d.channels == 1 &&
          d.threads == 256 && strstr(d.reason, "measured"));
    CHECK(taken(&plan, 1024) && !taken(&plan, 1025) && !taken(&plan, 4096));
    CHECK(strstr(of_bytes(&plan, 4096).reason, "measured not"));
    CHECK(!taken(&plan, 65535), "what lies between a loss and a win was not shown");
    d = of_bytes(&plan, 65536);
    CHECK(d.variant == IPS_TWOSHOT_LL128 && d.channels == 8);
    CHECK(!taken(&plan, 65537) && !taken(&plan, 1 << 20) && !taken(&plan, 1 << 24));
}

/* One that beats NCCL in both modes goes before one that is faster on the whole; of two
 * that are as fast, the smaller one is taken, whichever was measured first. */
static void test_choice(void)
{
    for (int turn = 0; turn < 2; turn++) {
        tuned = (struct ips_tuned){.ranks = 4, .link = IPS_LINK_PCIE};
        measured_nccl(1024, 10, 8);
        measured(1024, turn ? IPS_RING_LL : IPS_TWOSHOT_LL, 4, turn ? 3 : 9,
                 turn ? 8 : 7);
        measured(1024, turn ? IPS_TWOSHOT_LL : IPS_RING_LL, 4, turn ? 9 : 3,
                 turn ? 7 : 8);
        measured(4096, IPS_ONESHOT_LL, turn ? 8 : 2, turn ? 5 : 5.05, turn ? 5 : 5.05);
        measured(4096, IPS_ONESHOT_LL, turn ? 2 : 8, turn ? 5.05 : 5, turn ? 5.05 : 5);
        measured_nccl(4096, 10, 8);
        measured(65536, IPS_ONESHOT_LL, turn ? 8 : 2, turn ? 5 : 6, turn ? 5 : 6);
        measured(65536, IPS_ONESHOT_LL, turn ? 2 : 8, turn ? 6 : 5, turn ? 6 : 5);
        measured_nccl(65536, 10, 8);
        const struct ips_policy_plan plan =
            plan_of(&ips_policy_defaults, 4, IPS_LINK_PCIE, &tuned);
        CHECK(of_bytes(&plan, 1024).variant == IPS_TWOSHOT_LL, "%d", turn);
        CHECK(of_bytes(&plan, 4096).channels == 2, "%d", turn);
        CHECK(of_bytes(&plan, 65536).channels == 8, "%d", turn);
    }
}

/* Settings choose among what was measured; what they leave is taken up to the limit. */
static void test_tuned_and_asked(void)
{
    fill_tuned();
    struct ips_policy_settings s = asking(1 << 22);
    struct ips_policy_plan plan = plan_of(&s, 4, IPS_LINK_PCIE, &tuned);
    CHECK(of_bytes(&plan, 4096).variant == IPS_TWOSHOT_LL);
    CHECK(of_bytes(&plan, 4097).variant == IPS_TWOSHOT_LL128);
    CHECK(of_bytes(&plan, 1 << 22).variant == IPS_RING_SIMPLE &&
          !taken(&plan, (1 << 22) + 1));
    s.algo = IPS_ONESHOT;
    plan = plan_of(&s, 4, IPS_LINK_PCIE, &tuned);
    CHECK(of_bytes(&plan, 100).channels == 1);
    CHECK(ips_variant_algo((int)of_bytes(&plan, 1 << 20).variant) == IPS_ONESHOT);
    s.algo = IPS_ALGO_AUTO;
    s.max_channels = 4; /* what was measured with more is not what would run */
    plan = plan_of(&s, 4, IPS_LINK_PCIE, &tuned);
    CHECK(of_bytes(&plan, 1 << 20).channels <= 4);
}

/* --- plans of others --- */

static void test_valid(void)
{
    const struct ips_policy_settings s = asking(1 << 20);
    const struct ips_policy_plan good = plan_of(&s, 4, IPS_LINK_PCIE, NULL);
    struct ips_policy_plan bad;
    CHECK(sizeof good <= 512 && good.count >= 2);
    CHECK(!ips_policy_plan_valid(&good, sizeof good, 3, IPS_MAX_CHANNELS));
    CHECK(!ips_policy_plan_valid(&good, sizeof good - 1, 4, IPS_MAX_CHANNELS));
    CHECK(!ips_policy_plan_valid(&good, 0, 4, IPS_MAX_CHANNELS));
#define BREAK(what)                                                           \
    do {                                                                      \
        bad = good;                                                           \
        bad.what;                                                             \
        CHECK(!ips_policy_plan_valid(&bad, sizeof bad, 4, IPS_MAX_CHANNELS)); \
    } while (0)
    BREAK(magic ^= 1);
    BREAK(link = IPS_LINKS);
    BREAK(count = 0);
    BREAK(count = IPS_PLAN_ROWS + 1);
    BREAK(row[good.count - 1].up_to_bytes = 1ull << 40);
    BREAK(row[1].up_to_bytes = bad.row[0].up_to_bytes);
    BREAK(row[0].variant = IPS_VARIANTS);
    BREAK(row[0].channels = 0);
    BREAK(row[0].channels = IPS_MAX_CHANNELS + 1);
    BREAK(row[0].threads = 0);
    BREAK(row[0].threads = 100);
    BREAK(row[0].threads = IPS_MAX_THREADS + 32);
    BREAK(row[0].why = IPS_WHYS);
    BREAK(row[good.count - 1].channels = 1);
}

/* Whatever bytes are called a plan: those that pass lead to decisions in bounds. */
static void test_any_bytes(void)
{
    const struct ips_policy_settings s = asking(1 << 20);
    const struct ips_policy_plan good = plan_of(&s, 4, IPS_LINK_PCIE, NULL);
    uint64_t random = 12345;
    for (unsigned turn = 0; turn < 200000; turn++) {
        struct ips_policy_plan plan = good;
        for (unsigned i = 0; i < 1 + turn % 3; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            ((unsigned char *)&plan)[(random >> 33) % sizeof plan] =
                (unsigned char)(random >> 25);
        }
        if (!ips_policy_plan_valid(&plan, sizeof plan, 4, IPS_MAX_CHANNELS))
            continue;
        for (uint64_t bytes = 1; bytes < UINT64_C(1) << 60; bytes *= 64) {
            const struct ips_decision d = of_bytes(&plan, bytes);
            CHECK(d.route == IPS_ROUTE_NCCL ||
                  (d.variant < IPS_VARIANTS && d.channels >= 1 &&
                   d.channels <= IPS_MAX_CHANNELS && d.threads >= 32 &&
                   d.threads <= ips_variant_max_threads((int)d.variant)));
        }
    }
}

/* --- the model --- */

static void test_model(void)
{
    struct ips_candidate c;
    enum ips_link link;
    unsigned count = 0;
    while (ips_candidate_at(count, &c)) {
        CHECK(c.variant < IPS_VARIANTS && c.channels >= 1 &&
              c.channels <= IPS_MAX_CHANNELS);
        CHECK(c.threads % 32 == 0 &&
              c.threads <= ips_variant_max_threads((int)c.variant));
        count++;
    }
    CHECK(count > 50);
    EACH_LINK(link)
    for (unsigned ranks = IPS_MIN_RANKS; ranks <= IPS_MAX_RANKS; ranks++) {
        CHECK(ips_model_margin(link, ranks) < 1);
        double before[IPS_MODES] = {0};
        for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 2) {
            const struct ips_times nccl = ips_model_nccl(link, ranks, bytes);
            for (int mode = 0; mode < IPS_MODES; mode++) {
                CHECK(nccl.us[mode] > 0 && nccl.us[mode] >= before[mode]);
                CHECK(nccl.us[IPS_MODE_GRAPH] <= nccl.us[IPS_MODE_EAGER]);
                before[mode] = nccl.us[mode];
            }
        }
        for (unsigned i = 0; ips_candidate_at(i, &c); i++) {
            const struct ips_policy_place place = place_of(ranks, link);
            double last = 0;
            for (uint64_t bytes = 1; bytes < UINT64_C(1) << 40; bytes *= 2) {
                const double us =
                    ips_model_engine(&place, bytes, &c).us[IPS_MODE_EAGER];
                CHECK(us > last, "more bytes take longer");
                last = us;
            }
        }
    }
    CHECK(IPS_INBOX_BYTES == 64 << 10, "as model.c has it");
}

/* --- groups --- */

/* What was measured with other groups is not of use with these. */
static void test_measured_groups(void)
{
    struct ips_policy_place place = place_of(8, IPS_LINK_PCIE);
    for (unsigned group = 0; group <= 4; group += 2)
        for (unsigned now = 0; now <= 4; now += 2) {
            tuned = (struct ips_tuned){.ranks = 8, .link = IPS_LINK_PCIE, .group = group};
            measured_nccl(1 << 20, 100, 100);
            measured(1 << 20, IPS_RING_SIMPLE, 4, 50, 50);
            measured(1 << 20, IPS_HIERARCHICAL_SIMPLE, 4, 20, 20);
            place.group = now;
            const struct ips_policy_plan plan = plan_at(&ips_policy_defaults, &place, &tuned);
            const struct ips_decision d = ips_policy_decide(&plan, 1 << 18, IPS_FLOAT32, IPS_SUM);
            CHECK(d.variant == (group && group == now ? IPS_HIERARCHICAL_SIMPLE
                                                      : IPS_RING_SIMPLE), "%u, %u", group, now);
        }
}

static double model_us(const struct ips_policy_place *place, enum ips_variant variant)
{
    const struct ips_candidate c = {variant, 16, ips_variant_max_threads((int)variant)};
    return ips_model_engine(place, UINT64_C(1) << 30, &c).us[IPS_MODE_GRAPH];
}

/* How much longer it takes than the ring. */
static void check_ratio(const struct ips_policy_place *place, enum ips_variant variant,
                        double expected)
{
    const double ratio = model_us(place, variant) / model_us(place, IPS_RING_SIMPLE);
    CHECK(ratio > 0.98 * expected && ratio < 1.02 * expected, "%s: %f, not %f",
          ips_variant_name((int)variant), ratio, expected);
}

/* Four and four behind uplinks: one ring needs them for 7/4 of the message, the hierarchy for
 * as much as the message has; the narrower the uplink, the nearer the times come to that. */
static void test_uplink(void)
{
    struct ips_policy_place place = place_of(8, IPS_LINK_PCIE);
    const double alone = model_us(&place, IPS_RING_SIMPLE);
    place.group = 4;
    place.uplink = 4;
    CHECK(model_us(&place, IPS_RING_SIMPLE) == alone, "a wide uplink is none");
    place.uplink = 0.001; /* then nothing else counts */
    const double ring = model_us(&place, IPS_RING_SIMPLE);
    CHECK(ring > 500 * alone);
    check_ratio(&place, IPS_HIERARCHICAL_SIMPLE, 1.0 / 1.75);
    check_ratio(&place, IPS_TWOSHOT_LL128, 4 * 4.0 / 7 * 16 / 15);
    check_ratio(&place, IPS_ONESHOT_LL128, 4 * 4.0 / 1.75 * 16 / 15);
    place.group = 2; /* four pairs: 2 * 3/4 of M, and of all to all 6/7 */
    check_ratio(&place, IPS_HIERARCHICAL_SIMPLE, 1.5 / 1.75);
    check_ratio(&place, IPS_TWOSHOT_LL128, 2 * 6.0 / 7 * 16 / 15);
    check_ratio(&place, IPS_ONESHOT_LL128, 2 * 6.0 / 1.75 * 16 / 15);
}

/* Only where there are groups is there a hierarchy; by the model it is taken where the uplink
 * is narrow, and nobody makes a plan of it for ranks without. */
static void test_groups(void)
{
    struct ips_policy_settings s = asking(UINT64_C(1) << 40);
    struct ips_policy_place place = place_of(8, IPS_LINK_PCIE);
    struct ips_policy_plan plan = plan_at(&s, &place, NULL);
    CHECK(!plan.group && of_bytes(&plan, 1 << 28).variant == IPS_RING_SIMPLE);
    place.group = 4;
    place.uplink = 0.5;
    plan = plan_at(&s, &place, NULL);
    const struct ips_decision d = of_bytes(&plan, 1 << 28);
    CHECK(plan.group == 4 && d.variant == IPS_HIERARCHICAL_SIMPLE);
    for (unsigned group = 0; group < 12; group++) {
        plan.group = (uint8_t)group;
        CHECK(ips_policy_plan_valid(&plan, sizeof plan, 8, IPS_MAX_CHANNELS) ==
              (group == 2 || group == 4), "%u", group);
    }
    s = ips_policy_defaults;
    s.algo = IPS_HIERARCHICAL;
    place.group = 2;
    CHECK(plan_at(&s, &place, NULL).group == 2, "the machine's own");
    for (unsigned ranks = 2; ranks < 8; ranks += ranks < 3 ? 1 : 2) { /* no halves */
        plan = plan_of(&s, ranks, IPS_LINK_PCIE, NULL);
        CHECK(!plan.group && ips_variant_algo((int)of_bytes(&plan, 1 << 20).variant) == IPS_RING);
    }
}

/* By its time, Simple takes only what it was timed with; all that is asked for, always. */
static void test_uncommon(void)
{
    const uint64_t bytes = 16 << 20;
    const struct ips_policy_settings *const settings[] = {&ips_policy_defaults,
                                                          &(struct ips_policy_settings){
        .algo = IPS_RING, .proto = IPS_SIMPLE, .max_channels = 16, .max_bytes = UINT64_MAX}};
    for (int forced = 0; forced < 2; forced++) {
        const struct ips_policy_plan plan =
            plan_of(settings[forced], 8, IPS_LINK_SAME_GPU, NULL);
        for (int type = 0; type < IPS_TYPES; type++)
            for (int op = 0; op < IPS_OPS; op++) {
                const int common = op == IPS_SUM && (type == IPS_FLOAT32 ||
                                                     type == IPS_FLOAT16 ||
                                                     type == IPS_BFLOAT16);
                struct ips_decision d = ips_policy_decide(
                    &plan, bytes / ips_type_bytes(type), type, op);
                CHECK((d.route == IPS_ROUTE_ENGINE) == (common || forced), "%d %d", type,
                      op);
                CHECK(d.route == IPS_ROUTE_ENGINE || strstr(d.reason, "type"));
                d = ips_policy_decide(&plan, 1024 / ips_type_bytes(type), type, op);
                CHECK(d.route == IPS_ROUTE_ENGINE, "%d %d", type, op);
            }
    }
}

int main(void)
{
    test_asked();
    test_uncommon();
    test_ranks();
    test_types_and_counts();
    test_forced();
    test_by_model();
    test_channels();
    test_wild_settings();
    test_tuned();
    test_choice();
    test_tuned_and_asked();
    test_valid();
    test_any_bytes();
    test_model();
    test_uplink();
    test_groups();
    test_measured_groups();
    return check_result();
}
