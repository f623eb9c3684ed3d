/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol checker: for each seed a row of calls of changing size, algorithm, protocol,
 * channels and threads on all ranks, in the order and over the memory of a seeded adversary;
 * every element of every result is compared.
 *
 * usage: checker VARIANT RANKS FIRST_SEED SEEDS [8|16|128] */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <vector>

#include "kernels/mem_check.h"
#include "tests/checker/kernels.h"

#define CALLS_MAX 140
#define CALLS_USUAL 24
#define FLAG_WRAP (IPS_LL_FLAG_MASK + 1)
#define MARGIN 64
#define PATIENCE 200 /* where waits end with an abort: the word is looked at now and then */

struct call {
    uint32_t variant, channels, threads, type, element, shift_in, shift_out;
    bool in_place;
    uint64_t count;
};

/* One store of LL128 arrives changed. */
struct corruption {
    bool planned, done;
    uint32_t after, part; /* of the stores to this part of a line, which */
    uint32_t bit;         /* flipped; or, from 128 on: */
    uint32_t more, less;  /* added to its first word, subtracted from its second */
};

struct run {
    uint32_t variant, proto, ranks;
    uint32_t group; /* ranks of a group, or 0 */
    uint64_t seed;
    uint32_t calls, at[CHECK_RANKS]; /* the call each rank is in */
    struct call call[CALLS_MAX];
    uint64_t first_step[IPS_SEQUENCES];
    uint32_t calls_before; /* the number of the row's first call, less one */
    uint64_t captured[CHECK_RANKS]; /* calls so far */
    uint32_t absent; /* this rank never makes the last call, which is aborted; or ranks */
    uint32_t victim; /* the host aborts this rank alone at abort_tick; or ranks */
    uint64_t abort_tick;
    bool report; /* of absent: and that only after the others have reported their waits */
    uint32_t longer; /* this rank has a longer message in the last call than all others */
    struct corruption corrupt;
    uint32_t atom; /* bytes, of all seeds; 0: the seed decides */
    uint32_t wrapped, wrapped32; /* seeds that went through a wrap of LL's flag, of 32 bits */
    uint32_t apart; /* channels whose groups were seen to keep apart */
    uint64_t seen; /* notes of others that ranks which waited have shown their hosts */
    unsigned char *slabs;
    struct ips_control *control; /* of all ranks, behind the slabs */
    struct ips_allreduce_args args[CHECK_RANKS];
};

static struct run run;
static const char *const names[IPS_VARIANTS] = {"ring-ll",      "ring-ll128",
                                               "ring-simple",  "oneshot-ll",
                                               "oneshot-ll128", "twoshot-ll",
                                               "twoshot-ll128", "hierarchical-simple"};
static const size_t channels_at = IPS_HEAD_BYTES + sizeof(struct ips_mailbox);
static const size_t slab_bytes = IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(CHECK_BLOCKS);
static const size_t all_bytes = slab_bytes + sizeof(struct ips_control); /* of a rank */

void failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\n  calls under way:");
    for (uint32_t r = 0; r < run.ranks; r++)
        fprintf(stderr, " %u(%s)", run.at[r],
                run.at[r] < run.calls ? names[run.call[run.at[r]].variant] : "ended");
    if (world.aborted)
        fprintf(stderr, "\n  the last one is aborted");
    fprintf(stderr, "\n  again: checker %s %u %llu 1\n", names[run.variant], run.ranks,
            (unsigned long long)run.seed);
    exit(1);
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 27) * 0x94d049bb133111ebull;
    return x ^ x >> 31;
}

/* Of floats, such that sums of all ranks are exact. */
static uint64_t input(uint32_t type, uint32_t call, uint32_t rank, uint64_t i)
{
    const uint64_t any =
        mix(((run.seed * CALLS_MAX + call) * CHECK_RANKS + rank) * 65536 + i + 1);
    return type == IPS_FLOAT32 ? any % (1u << 20) : any;
}

static void put(unsigned char *to, uint64_t value, uint32_t element)
{
    memcpy(to, &value, element); /* little-endian */
}

/* The bits of a number in this type. */
static uint64_t bits_of(uint32_t type, uint64_t value)
{
    if (type != IPS_FLOAT32)
        return value;
    const float number = (float)value;
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

static struct ips_head *head_of(uint32_t rank)
{
    return (struct ips_head *)(run.slabs + rank * slab_bytes);
}

static struct ips_mailbox *mailbox_of(uint32_t rank)
{
    return (struct ips_mailbox *)(run.slabs + rank * slab_bytes + IPS_HEAD_BYTES);
}

static struct ips_channel *channel_of(uint32_t rank, uint32_t channel)
{
    return (struct ips_channel *)(run.slabs + rank * slab_bytes + channels_at) + channel;
}

/* Whether this place in the slabs lies in these bytes of a channel. */
static bool in_channel(size_t at, size_t begin, size_t bytes)
{
    const size_t in = at % slab_bytes - channels_at;
    return at < run.ranks * slab_bytes && in < slab_bytes &&
           in % sizeof(struct ips_channel) - begin < bytes;
}

static bool in_inbox(size_t at)
{
    return in_channel(at, offsetof(struct ips_channel, inbox),
                      sizeof(((struct ips_channel *)0)->inbox));
}

/* Whether it belongs to LL128, whose lines are stored whole. */
static bool in_ll128(size_t at)
{
    return in_channel(at, offsetof(struct ips_channel, ll128),
                      IPS_LL128_SLOTS * IPS_LL128_SLOT_BYTES) ||
           in_channel(at, offsetof(struct ips_channel, inbox[IPS_LL128]),
                      2 * IPS_INBOX_BYTES);
}

static uint64_t guard_key(uint32_t hash, uint32_t index)
{
    return mix(run.seed * 1000 + hash * 100 + index + 1);
}

static bool is_direct(uint32_t variant)
{
    return !ips_is_ring((int)variant);
}

static bool is_hierarchical(uint32_t variant)
{
    return ips_variant_algo((int)variant) == IPS_HIERARCHICAL;
}

static bool is_simple(uint32_t variant)
{
    return ips_variant_proto((int)variant) == IPS_SIMPLE;
}

static uint32_t sequence_of(uint32_t variant)
{
    return (uint32_t)ips_sequence_of((int)variant);
}

/* Data bytes of a line; of Simple, which has none, of as much as a store. */
static uint64_t unit_of(uint32_t proto)
{
    static const uint64_t units[IPS_PROTOS] = {IPS_LL_LINE_DATA, IPS_LL128_LINE_DATA, 16};
    return units[proto];
}

/* Data bytes that one piece of the variant moves at most. */
static uint64_t piece_of(uint32_t variant)
{
    const uint64_t slots[IPS_PROTOS] = {IPS_LL_SLOT_LINES * IPS_LL_LINE_DATA,
                                        IPS_LL128_SLOT_LINES * IPS_LL128_LINE_DATA,
                                        IPS_SIMPLE_BYTES / ips_simple_slots(run.ranks)};
    const uint32_t proto = (uint32_t)ips_variant_proto((int)variant);
    const uint64_t unit = proto == IPS_SIMPLE ? 128 : unit_of(proto);
    if (is_hierarchical(variant)) /* as many chunks share a slot as there are groups */
        return slots[proto] / unit / (run.ranks / run.group) * unit * run.ranks;
    if (!is_direct(variant))
        return slots[proto] * run.ranks;
    const uint32_t line = proto == IPS_LL ? 16 : 128;
    return ips_inbox_lines(line, run.ranks) * unit_of(proto) *
           (ips_variant_algo((int)variant) == IPS_TWOSHOT ? run.ranks : 1);
}

/* Most calls are short, some need several pieces; in some, not every rank has a line. */
static uint64_t plan_bytes(uint32_t variant)
{
    const uint64_t piece = piece_of(variant);
    switch (chance() % 8) {
    case 3:
        return 1 + chance() % (run.ranks * unit_of((uint32_t)ips_variant_proto((int)variant)));
    case 0:
        return 1 + chance() % 16;
    case 1:
        return 1 + chance() % (2 * piece);
    case 2:
        return 1 + chance() % (run.ranks > 4 ? piece : is_direct(variant) ? 3 * piece : 5 * piece);
    default:
        return 1 + chance() % (piece / (is_direct(variant) ? 6 : 4));
    }
}

/* Mostly the one asked for; or the one that shares its steps and memory: one-shot and
 * two-shot, and ring and hierarchical, in turns; or any. */
static uint32_t plan_variant(void)
{
    const uint64_t which = chance() % 8;
    const int algo = ips_variant_algo((int)run.variant);
    int variant = (int)run.variant;
    if (which < 2)
        variant = (int)(chance() % IPS_VARIANTS);
    else if (which < 4)
        variant = ips_variant_of(is_direct(run.variant) ? IPS_ONESHOT + IPS_TWOSHOT - algo
                                                        : IPS_RING + IPS_HIERARCHICAL - algo,
                                 (int)run.proto);
    const bool can = variant >= 0 && (run.group || !is_hierarchical((uint32_t)variant));
    return can ? (uint32_t)variant : run.variant;
}

/* Hierarchical calls need groups, and with them all calls of the ring give more credits. */
static void plan_group(void)
{
    uint32_t group[CHECK_RANKS], groups = 0;
    for (uint32_t g = 2; g < run.ranks; g++)
        if (ips_groups_valid(g, run.ranks))
            group[groups++] = g;
    const bool wanted = is_hierarchical(run.variant) || chance() % 4 == 0;
    run.group = groups && wanted ? group[chance() % groups] : 0;
}

static void plan_call(struct call *call)
{
    static const uint32_t types[4] = {IPS_FLOAT32, IPS_UINT32, IPS_UINT8, IPS_UINT64};
    call->variant = plan_variant();
    call->channels = 1 + (uint32_t)(chance() % CHECK_BLOCKS);
    call->threads = chance() % 4 ? WARP : world.threads_max;
    call->type = types[chance() % 4];
    call->element = ips_element_bytes((int)call->type);
    call->in_place = chance() % 4 == 0;
    call->shift_in = chance() % 4 ? 0 : (uint32_t)(chance() % 4);
    call->shift_out = chance() % 4 ? 0 : (uint32_t)(chance() % 4);
    uint64_t bytes = plan_bytes(call->variant);
    if (bytes > CHECK_USER_BYTES - 2 * MARGIN)
        bytes = CHECK_USER_BYTES - 2 * MARGIN;
    call->count = (bytes + call->element - 1) / call->element;
}

/* Steps of a call of one channel. */
static uint64_t steps_of_call(const struct call *call)
{
    const uint64_t piece = piece_of(call->variant) / call->element;
    const uint64_t pieces = (call->count + piece - 1) / piece;
    const int algo = ips_variant_algo((int)call->variant);
    if (algo == IPS_HIERARCHICAL)
        return pieces * (2 * run.group + 2 * (run.ranks / run.group) - 4);
    return pieces * (algo == IPS_ONESHOT ? 1 : algo == IPS_TWOSHOT ? 2 : 2 * run.ranks - 2);
}

static struct call *add_call(uint32_t variant, uint64_t bytes)
{
    if (run.calls == CALLS_MAX)
        failed("the checker keeps too few calls");
    struct call *call = &run.call[run.calls++];
    *call = {};
    call->variant = variant;
    call->channels = 1;
    call->threads = WARP;
    call->type = IPS_UINT32;
    call->element = 4;
    call->count = bytes / 4;
    return call;
}

/* A short call of the sequence under test that takes at most so many steps. */
static uint64_t add_short(uint64_t most)
{
    uint32_t variant = run.variant;
    if (is_direct(variant) && (most == 1 || chance() % 4 == 0))
        variant = IPS_ONESHOT_LL;
    return steps_of_call(add_call(variant, 4));
}

/* Calls of LL that fill all lines of all slots, or of both inboxes, a whole wrap of the flag
 * apart, and short ones in between: what a wrap ago left behind must not be taken for new. */
static void plan_wrap(void)
{
    const uint64_t piece = piece_of(run.variant);
    const uint32_t steps = 2 * run.ranks - 2;
    uint64_t pieces = run.variant == IPS_ONESHOT_LL ? 2 : 1;
    if (!is_direct(run.variant) && run.ranks != 8)
        pieces = 12 / steps + 1;
    run.calls = 0;
    uint64_t left = FLAG_WRAP - steps_of_call(add_call(run.variant, piece * pieces));
    while (left >= (is_direct(run.variant) ? 1 : steps))
        left -= add_short(left);
    add_call(run.variant, piece * pieces);
    add_call(run.variant, piece * pieces);
    run.absent = run.victim = run.longer = run.ranks;
    run.corrupt = {};
    if (chance() % 2) /* begin where lines are cleaned */
        run.first_step[sequence_of(run.variant)] = FLAG_WRAP * (1 + chance() % 4) - 1;
}

/* The last call is a different one on one rank: the same steps, with longer chunks. There
 * is nothing that it could take for the end of them. */
static void plan_longer(void)
{
    const uint32_t variant = run.call[run.calls - 1].variant;
    const uint32_t proto = (uint32_t)ips_variant_proto((int)variant);
    if (proto == IPS_SIMPLE)
        return; /* has no way to tell */
    run.longer = (uint32_t)(chance() % run.ranks);
    world.patience = PATIENCE;
    run.calls--;
    const uint64_t chunks = ips_variant_algo((int)variant) == IPS_ONESHOT ? 1 : run.ranks;
    add_call(variant, chunks * unit_of(proto));
}

/* What added to the first word of this part of a line, and subtracted from the second, does
 * not change one hash of the guard, but for a carry that is seldom. */
static bool find_collision(uint32_t hash, struct corruption *corrupt)
{
    const uint64_t first = guard_key(hash, 4 * corrupt->part + 1);
    const uint64_t second = guard_key(hash, 4 * corrupt->part + 2);
    const uint32_t most = 1u << 18;
    std::vector<std::pair<uint64_t, uint32_t>> products;
    for (uint32_t less = 1; less < most; less++)
        products.push_back({second * less, less});
    std::sort(products.begin(), products.end());
    for (corrupt->more = 1; corrupt->more < most; corrupt->more++) {
        const uint64_t product = first * corrupt->more;
        auto at = std::upper_bound(products.begin(), products.end(),
                                   std::make_pair(product, UINT32_MAX));
        if (at == products.begin() || product - (--at)->first >= 1u << 29)
            continue;
        corrupt->less = at->second;
        return true;
    }
    return false;
}

/* A link that changes what it carries: a bit, or so that one of the two hashes does not see
 * it. Nobody may take that line. */
static void plan_corrupt(void)
{
    struct corruption *corrupt = &run.corrupt;
    corrupt->after = (uint32_t)(chance() % 100);
    corrupt->part = (uint32_t)(chance() % 8);
    corrupt->bit = (uint32_t)(chance() % 256);
    corrupt->planned = corrupt->bit < 128 || find_collision(corrupt->bit % 2, corrupt);
    world.patience = PATIENCE;
}

void driver_store16(size_t at, uint64_t *low, uint64_t *high)
{
    struct corruption *corrupt = &run.corrupt;
    if (!corrupt->planned || corrupt->done || !in_ll128(at) || at / 16 % 8 != corrupt->part)
        return;
    if (corrupt->after) {
        corrupt->after--;
        return;
    }
    uint64_t *changed = corrupt->bit < 64 || corrupt->bit >= 128 ? low : high;
    if (!*changed)
        return; /* padding: what was there before may be the same */
    const uint64_t first = (*low & UINT32_MAX) + corrupt->more;
    const uint64_t second = (*low >> 32) - corrupt->less;
    if (corrupt->bit < 128)
        *changed ^= 1ull << corrupt->bit % 64;
    else if (first > UINT32_MAX || second > UINT32_MAX)
        return; /* another one */
    else
        *low = first | second << 32;
    corrupt->done = true;
}

uint64_t *driver_store(uint64_t *address, uint64_t *)
{
    return address;
}

static void plan(void)
{
    chance_temper();
    plan_group();
    static const uint32_t atoms[8] = {8, 8, 8, 8, 8, 16, 16, 128};
    world.temper.atom = atoms[chance() % 8];
    if (run.atom)
        world.temper.atom = run.atom;
    const uint32_t few = run.ranks <= 3 ? CALLS_USUAL - 5 : run.ranks == 4 ? 8 : 3;
    run.calls = (run.ranks <= 4 ? 5 : 3) + (uint32_t)(chance() % few);
    for (uint32_t i = 0; i < run.calls; i++)
        plan_call(&run.call[i]);
    run.absent = run.victim = run.longer = run.ranks;
    run.corrupt = {};
    if (chance() % 16 == 0) {
        run.victim = (uint32_t)(chance() % run.ranks);
        run.abort_tick = chance() % (1000 << chance() % 9);
        world.patience = PATIENCE;
    } else if (chance() % 16 == 0) {
        run.absent = (uint32_t)(chance() % run.ranks);
        run.report = chance() % 4 == 0;
        world.patience = PATIENCE;
    } else if (chance() % 16 == 0) {
        plan_longer();
    } else if (run.proto == IPS_LL128 && chance() % 16 == 0) {
        plan_corrupt();
    }
    for (uint64_t &step : run.first_step) /* below a wrap of LL's flag, or of 32 bits */
        step = chance() % 2 ? chance() % 300 : (1ull << 32) - 1 - chance() % 30;
    if (chance() % 4 == 0) /* soon lines are cleaned */
        run.first_step[sequence_of(IPS_ONESHOT_LL)] = (2 + chance() % 4) * FLAG_WRAP / 2 - 1 -
                                                      chance() % 16;
    if (run.proto == IPS_LL && chance() % (is_direct(run.variant) ? 6 : 8) == 0)
        plan_wrap();
}

/* A channel as calls up to first_step have left it. */
static void prepare_channel(uint32_t rank, uint32_t c)
{
    struct ips_channel *channel = channel_of(rank, c);
    for (uint32_t s = 0; s < IPS_SEQUENCES; s++)
        head_of(rank)->step[s][c] = run.first_step[s];
    for (uint32_t r = 0; r < run.ranks; r++) {
        for (uint32_t p = 0; p < IPS_PROTOS; p++)
            memory_set(&channel->credit[p][r].value, run.first_step[p]);
        memory_set(&channel->flag[r].value, run.first_step[IPS_SIMPLE]);
    }
    for (uint32_t s = 0; s < IPS_LL_SLOTS; s++) {
        const uint64_t last = run.first_step[IPS_LL];
        const uint64_t ago = (last - s) % IPS_LL_SLOTS;
        const uint64_t flag = (ago > last ? 0 : last - ago) & IPS_LL_FLAG_MASK;
        for (uint32_t i = 0; i < IPS_LL_SLOT_BYTES; i += 8)
            memory_set(&channel->ll[s][i], flag << 32 | 0xbad);
    }
    for (uint32_t parity = 0; parity < 2; parity++) {
        const uint64_t last = run.first_step[sequence_of(IPS_ONESHOT_LL)];
        const uint64_t ago = (last - parity) % 2;
        const uint64_t flag = (ago > last ? 0 : last - ago) & IPS_LL_FLAG_MASK;
        for (uint32_t i = 0; i < IPS_INBOX_BYTES; i += 8)
            memory_set(&channel->inbox[IPS_LL][parity][i], flag << 32 | 0xbad);
    }
}

/* Numbers begin anywhere; sometimes below a wrap of their low 16 or 32 bits. */
static uint32_t plan_numbers(void)
{
    const uint64_t any = mix(run.seed + 1);
    const uint32_t first[4] = {0, (uint32_t)(any >> 32), (1u << 16) - 1, UINT32_MAX};
    return first[any % 4] - (any % 4 > 1 ? (uint32_t)(any >> 2) % 16 : 0);
}

static void prepare(void)
{
    run.calls_before = plan_numbers();
    memset(run.slabs, 0, run.ranks * all_bytes);
    world.slabs_bytes = run.ranks * slab_bytes;
    world.slab_bytes = slab_bytes;
    world.lines = in_ll128;
    world.inbox = in_inbox;
    memory_reset(run.slabs, run.ranks * all_bytes);
    races_reset(run.slabs, slab_bytes, IPS_HEAD_BYTES);
    for (uint32_t r = 0; r < run.ranks; r++) {
        for (uint32_t h = 0; h < 2; h++)
            for (uint32_t i = 0; i < IPS_GUARD_WORDS + 2; i++)
                head_of(r)->keys.key[h][i] = guard_key(h, i);
        for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
            prepare_channel(r, c);
        memory_set(&head_of(r)->call, run.calls_before);
        run.at[r] = 0;
        run.captured[r] = 0;
    }
}

static bool aborting(uint32_t rank)
{
    return run.absent < run.ranks && run.at[rank] + 1 == run.calls;
}

static bool in_last(uint32_t rank)
{
    return run.at[rank] + 1 == run.calls;
}

/* Of the rank's call at that place of the row. */
static uint64_t count_of(uint32_t rank, uint32_t index)
{
    return run.call[index].count * (rank == run.longer && index + 1 == run.calls ? 3 : 1);
}

static uint32_t number_of(uint32_t index)
{
    return run.calls_before + index + 1;
}

static bool is_captured(uint32_t rank, uint32_t index)
{
    return mix((run.seed * CALLS_MAX + index) * CHECK_RANKS + rank) % 4 == 0;
}

/* Of integers now and then the average, which tells where a sum is taken for complete. */
static uint32_t op_of(uint32_t index)
{
    const bool averages = mix(run.seed * CALLS_MAX + index + 1) % 4 == 0;
    return averages && run.call[index].type != IPS_FLOAT32 ? IPS_AVG : IPS_SUM;
}

static void launch(uint32_t rank)
{
    const struct call *call = &run.call[run.at[rank]];
    const uint64_t count = count_of(rank, run.at[rank]);
    const size_t bytes = count * call->element;
    unsigned char *out =
        races_user(rank, 1, MARGIN + call->shift_out * call->element, bytes);
    unsigned char *in =
        call->in_place ? out
                       : races_user(rank, 0, MARGIN + call->shift_in * call->element, bytes);
    memset(out, 0xee, bytes);
    for (uint64_t i = 0; i < count; i++)
        put(in + i * call->element,
            bits_of(call->type, input(call->type, run.at[rank], rank, i)), call->element);
    struct ips_allreduce_args *args = &run.args[rank];
    *args = {};
    args->in = in;
    args->out = out;
    args->count = count;
    args->head = head_of(rank);
    for (uint32_t r = 0; r < run.ranks; r++) {
        args->mailbox[r] = mailbox_of(r);
        args->peer[r] = (uint8_t)r;
    }
    args->control = &run.control[rank];
    args->rank = rank;
    args->nranks = run.ranks;
    args->group = run.group;
    args->type = call->type;
    args->element = call->element;
    args->op = op_of(run.at[rank]);
    args->captured = is_captured(rank, run.at[rank]);
    run.captured[rank] += args->captured;
    world.abort_word[rank] = &run.control[rank].abort;
    for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
        world.block[rank * CHECK_BLOCKS + c].tells = is_simple(call->variant);
    lanes_launch(rank, checked_kernels[call->variant], args, call->channels, call->threads);
}

static void judge(uint32_t rank)
{
    const struct call *call = &run.call[run.at[rank]];
    const unsigned char *out = (const unsigned char *)run.args[rank].out;
    for (uint64_t i = 0; i < call->count; i++) {
        uint64_t sum = 0, got = 0;
        for (uint32_t r = 0; r < run.ranks; r++)
            sum += input(call->type, run.at[rank], r, i);
        sum = bits_of(call->type, sum);
        put((unsigned char *)&sum + call->element, 0, 8 - call->element);
        if (op_of(run.at[rank]) == IPS_AVG)
            sum /= run.ranks;
        memcpy(&got, out + i * call->element, call->element);
        if (got != sum)
            failed("rank %u call %u element %llu of %llu is %llx, not %llx", rank,
                   run.at[rank], (unsigned long long)i, (unsigned long long)call->count,
                   (unsigned long long)got, (unsigned long long)sum);
    }
}

typedef uint64_t all_steps[IPS_SEQUENCES][CHECK_BLOCKS];

static void note_steps(uint32_t rank, all_steps ret)
{
    for (uint32_t s = 0; s < IPS_SEQUENCES; s++)
        for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
            ret[s][c] = head_of(rank)->step[s][c];
}

/* An aborted call leaves each step as it was, or for ever unusable. */
static bool counts_aborted(uint32_t rank, const all_steps before)
{
    for (uint32_t s = 0; s < IPS_SEQUENCES; s++)
        for (uint32_t c = 0; c < CHECK_BLOCKS; c++)
            if (head_of(rank)->step[s][c] != before[s][c] &&
                head_of(rank)->step[s][c] != IPS_STEP_DEAD)
                return true;
    return false;
}

static void abort_all(void)
{
    world.aborted = true;
    world.quiet = 0;
    for (uint32_t r = 0; r < run.ranks; r++)
        memory_set(&run.control[r].abort, 1);
}

void driver_poll(void)
{
    if (run.victim == run.ranks || world.aborted || world.ticks < run.abort_tick)
        return;
    world.aborted = true;
    memory_set(&run.control[run.victim].abort, 1);
}

/* The second half of what a rank says about the call at that place of the row. */
static uint64_t described(uint32_t index, uint32_t number)
{
    const struct call *call = &run.call[index];
    return number | (call->type | op_of(index) << 8 | call->variant << 16 |
                     (uint64_t)call->channels << 24) << 32;
}

/* What a kernel says about its call is true. A thread may start before block 0 has counted. */
static void judge_call(uint32_t rank, const struct ips_call *said, uint32_t number)
{
    if (memory_newest(&said->count) != count_of(rank, run.at[rank]) ||
        memory_newest(&said->number) != described(run.at[rank], number))
        failed("rank %u describes call %u wrongly", rank, run.at[rank]);
}

/* Whether these are the halves of a note of the rank's call at that place of the row. */
static bool notes(uint32_t rank, uint32_t index, uint64_t low, uint64_t high)
{
    const uint64_t number = number_of(index);
    return low == (count_of(rank, index) | number << IPS_NOTE_COUNT_BITS) &&
           high == described(index, (uint32_t)number);
}

static bool newest_notes(uint32_t rank, uint32_t index, const struct ips_note *note)
{
    return notes(rank, index, memory_newest(&note->count), memory_newest(&note->number));
}

/* The rank's history tells of the call that is done, and the host is shown it if it is one of
 * those that are, and else nothing. */
static void judge_noted(uint32_t rank)
{
    const uint32_t index = run.at[rank], number = number_of(index);
    const struct ips_control *control = &run.control[rank];
    if (!newest_notes(rank, index, &mailbox_of(rank)->history[number % IPS_CALL_HISTORY]))
        failed("rank %u has not noted call %u", rank, index);
    const bool shown = newest_notes(rank, index, &control->history[ips_shown_at(number)]);
    if (shown != (is_captured(rank, index) || number < 16 || number % 61 == 0))
        failed("rank %u has call %u shown, or not, against the rule", rank, index);
    if (memory_newest(&control->count[0]) != run.captured[rank])
        failed("rank %u has not counted %llu captured calls", rank,
               (unsigned long long)run.captured[rank]);
}

/* What the rank has seen of others' calls, which they may have done more of by now, is true.
 * The host may have read halves of two notes, but can tell. How many notes there are. */
static uint32_t judge_seen(uint32_t rank, uint32_t of,
                           uint64_t (*load)(const struct ips_note *note, int half))
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < IPS_CALL_HISTORY; i++) {
        const struct ips_note *note = &run.control[rank].seen[of][i];
        const uint64_t low = load(note, 0), high = load(note, 1);
        if (!(low << (64 - IPS_NOTE_COUNT_BITS)) || !(uint32_t)high ||
            low >> IPS_NOTE_COUNT_BITS != (high & 0xffff))
            continue; /* as the host does */
        const uint32_t index = (uint32_t)high - number_of(0);
        if (index > run.at[of] || index >= run.calls || !notes(of, index, low, high) ||
            (uint32_t)high % IPS_CALL_HISTORY != i)
            failed("rank %u has seen a call of rank %u that there was not: %llx %llx", rank, of,
                   (unsigned long long)low, (unsigned long long)high);
        found++;
    }
    return found;
}

/* Of all ranks. */
static void note_seen(uint32_t rank, uint64_t (*load)(const struct ips_note *note, int half))
{
    for (uint32_t r = 0; r < run.ranks; r++) {
        const uint32_t found = judge_seen(rank, r, load);
        run.seen += r == rank ? 0 : found;
    }
}

static uint64_t newest_half(const struct ips_note *note, int half)
{
    return memory_newest((const uint64_t *)note + half);
}

static uint64_t host_half(const struct ips_note *note, int half)
{
    return check_load((const uint64_t *)note + half, 0);
}

/* The rank has written down a wait: it has looked around, and missed none of its own calls. The
 * note of the one before the last three may have made room for the one under way. */
static void judge_looks(uint32_t rank)
{
    const struct ips_control *control = &run.control[rank];
    note_seen(rank, host_half);
    for (uint32_t i = 1; i < IPS_CALL_HISTORY && i <= run.at[rank]; i++) {
        const uint32_t index = run.at[rank] - i;
        const uint32_t at = number_of(index) % IPS_CALL_HISTORY;
        if (!newest_notes(rank, index, &control->seen[rank][at]))
            failed("rank %u does not see its own call %u", rank, index);
    }
    if (!memory_newest(&control->looks))
        failed("rank %u does not count its looks", rank);
}

static void judge_step(uint32_t rank, const struct call *call, uint64_t step, uint64_t before)
{
    const bool direct = is_direct(call->variant);
    const uint64_t least = direct ? before + 1 : before + 1 - IPS_LL_SLOTS;
    if (step - least >= (direct ? steps_of_call(call) : 10000))
        failed("rank %u waits for step %llu after %llu", rank, (unsigned long long)step,
               (unsigned long long)before);
}

static bool is_neighbour(uint32_t rank, int ring, uint64_t kind, uint32_t peer)
{
    const uint32_t n = run.ranks, g = run.group;
    const uint32_t back = kind == IPS_WAIT_DATA;
    const uint32_t place = rank % (g ? g : 1), next = back ? g - 1 : 1;
    if (ring == IPS_RING_INSIDE)
        return peer == rank - place + (place + next) % g;
    const uint32_t stride = ring == IPS_RING_BETWEEN ? g : 1;
    return peer == (rank + (back ? n - stride : stride)) % n;
}

/* `ahead`: how far the step is ahead of those that are done. In the first of one-shot and
 * two-shot, every rank waits for none but those that have not sent. */
static void judge_peer(uint32_t rank, const struct call *call, uint64_t kind, uint32_t peer,
                       uint64_t ahead)
{
    bool good = false;
    if (is_direct(call->variant))
        good = kind == IPS_WAIT_DATA && peer < run.ranks && peer != rank &&
               (run.absent == run.ranks || ahead > 1 || peer == run.absent);
    else if (is_hierarchical(call->variant))
        good = is_neighbour(rank, IPS_RING_INSIDE, kind, peer) ||
               is_neighbour(rank, IPS_RING_BETWEEN, kind, peer);
    else
        good = is_neighbour(rank, IPS_RING_OF_ALL, kind, peer);
    if (!good)
        failed("rank %u names rank %u, the wrong peer", rank, peer);
}

static void judge_report(uint32_t rank)
{
    const struct ips_stuck *stuck = &run.control[rank].stuck;
    const uint64_t state = check_load(&stuck->state, 1), kind = state & 255;
    if (kind == IPS_WAIT_NONE || state != memory_newest(&stuck->state))
        return; /* not visible yet, or an older one: the host looks again */
    if (kind != IPS_WAIT_DATA && kind != IPS_WAIT_CREDIT)
        failed("the host sees a record without a kind");
    const uint64_t where = check_load((const uint64_t *)&stuck->channel, 0);
    const uint64_t step = check_load(&stuck->step, 0);
    const struct call *call = &run.call[run.at[rank]];
    const uint32_t sequence = sequence_of(call->variant);
    const uint64_t before = head_of(rank)->step[sequence][where & 1];
    if ((uint32_t)where >= call->channels)
        failed("rank %u names the wrong channel", rank);
    judge_step(rank, call, step, before);
    judge_peer(rank, call, kind, (uint32_t)(where >> 32), step - before);
    if (state >> 8 == 0)
        failed("rank %u does not count its records", rank);
    const uint64_t seen = check_load(&stuck->seen, 0);
    if ((kind == IPS_WAIT_CREDIT || is_simple(call->variant)) &&
        (seen >= step || seen < run.first_step[sequence]))
        failed("rank %u cannot have seen %llu while it waits for %llu", rank,
               (unsigned long long)seen, (unsigned long long)step);
    const uint32_t number = (uint32_t)check_load((const uint64_t *)&stuck->call.number, 0);
    const uint32_t right = number_of(run.at[rank]);
    const bool early = is_direct(call->variant) || (uint32_t)where; /* may not know it yet */
    judge_call(rank, &stuck->call, early && number == right - 1 ? number : right);
    judge_looks(rank);
}

/* Nothing moves any more: somebody must have written down why. */
static void judge_reports(void)
{
    struct lane *before = world.current;
    bool reported = false;
    lanes_be_host();
    world.fresh = false; /* the host may see old values, where nothing forbids it */
    world.temper.stale = 200;
    for (uint32_t r = 0; r < run.ranks; r++) {
        if ((r == run.absent && in_last(r)) || run.at[r] == run.calls)
            continue;
        reported |= (memory_newest(&run.control[r].stuck.state) & 255) != IPS_WAIT_NONE;
        judge_report(r);
    }
    if (!reported)
        failed("no rank has reported its wait");
    world.current = before;
}

/* No wait goes on, so no record of one is left. */
static void judge_report_over(uint32_t rank)
{
    if (memory_newest(&run.control[rank].stuck.state) & 255)
        failed("rank %u has left the record of a wait that is over", rank);
}

/* Whether that is what the plan of this seed comes to. */
static bool meant_to_stick(void)
{
    return (run.report && run.absent < run.ranks) || run.longer < run.ranks ||
           run.corrupt.done;
}

bool driver_stuck(void)
{
    if (run.victim != run.ranks && world.aborted) {
        run.victim = run.ranks;
        abort_all();
        return true;
    }
    if (!meant_to_stick() || world.aborted)
        return false;
    judge_reports();
    abort_all();
    return true;
}

static bool saw_abort(uint32_t rank)
{
    bool dead = false;
    for (uint32_t i = 0; i < world.lanes; i++)
        dead |= world.lane[i].rank == rank && world.lane[i].dead;
    return dead;
}

/* A rank's kernel has ended. */
static void done(uint32_t rank)
{
    static all_steps before[CHECK_RANKS];
    judge_report_over(rank);
    if (!saw_abort(rank))
        judge_noted(rank);
    note_seen(rank, newest_half);
    if (run.longer < run.ranks && in_last(rank)) {
        if (rank == run.longer && !saw_abort(rank))
            failed("rank %u has taken for data what nobody sent", rank);
    } else if (!saw_abort(rank) && !aborting(rank))
        judge(rank);
    else if (aborting(rank) && counts_aborted(rank, before[rank]))
        failed("rank %u counts an aborted call as done", rank);
    if (++run.at[rank] == run.calls || world.aborted)
        return;
    note_steps(rank, before[rank]);
    if (!aborting(rank) || rank != run.absent) {
        launch(rank);
        return;
    }
    if (!run.report)
        abort_all();
}

/* Of all who read what the rank has sent, or will. */
static void judge_credits(uint32_t rank, uint32_t channel, uint32_t proto, uint64_t step)
{
    for (uint32_t peer = 0; peer < run.ranks; peer++) {
        bool reads = is_neighbour(rank, IPS_RING_OF_ALL, IPS_WAIT_CREDIT, peer);
        for (int ring = IPS_RING_INSIDE; run.group && proto == IPS_SIMPLE && ring < IPS_RINGS;
             ring++)
            reads |= is_neighbour(rank, ring, IPS_WAIT_CREDIT, peer);
        if (reads && memory_newest(&channel_of(rank, channel)->credit[proto][peer].value) != step)
            failed("rank %u has not the credit of %u for what it has sent", rank, peer);
    }
}

/* Where all calls of Simple were hierarchical, nobody has written into another group but to
 * who has the same place there: the first of a group has heard nothing from the rank before. */
static void judge_uplink(void)
{
    bool ring = false, hierarchical = false;
    for (uint32_t i = 0; i < run.calls; i++) {
        ring |= run.call[i].variant == IPS_RING_SIMPLE;
        hierarchical |= run.call[i].variant == IPS_HIERARCHICAL_SIMPLE;
    }
    for (uint32_t r = 0; hierarchical && !ring && r < run.ranks; r += run.group)
        for (uint32_t c = 0; c < CHECK_BLOCKS; c++) {
            const uint32_t before = (r + run.ranks - 1) % run.ranks;
            if (memory_newest(&channel_of(r, c)->flag[before].value) !=
                run.first_step[IPS_SIMPLE])
                failed("rank %u, of another group, has sent to rank %u", before, r);
            run.apart++;
        }
}

/* All calls are through: the ranks agree on the steps, and have credit for those of the ring, by
 * which ips_engine_destroy knows that nobody writes any more. */
static void judge_end(void)
{
    for (uint32_t r = 0; r < run.ranks; r++)
        for (uint32_t s = 0; s < IPS_SEQUENCES; s++)
            for (uint32_t c = 0; c < CHECK_BLOCKS; c++) {
                const uint64_t step = head_of(r)->step[s][c];
                if (step < run.first_step[s])
                    failed("rank %u goes back to step %llu", r, (unsigned long long)step);
                if (step != head_of(0)->step[s][c])
                    failed("ranks 0 and %u differ in the step of sequence %u", r, s);
                if (s < IPS_PROTOS)
                    judge_credits(r, c, s, step);
            }
    for (uint32_t r = 0; r < run.ranks; r++)
        if (head_of(r)->count[0] != run.captured[r])
            failed("rank %u has not counted its captured calls", r);
}

/* Whether this seed's calls of the variant went through wraps. */
static void note_wraps(void)
{
    const uint32_t sequence = sequence_of(run.variant);
    const uint64_t first = run.first_step[sequence], last = head_of(0)->step[sequence][0];
    run.wrapped += first / FLAG_WRAP != last / FLAG_WRAP;
    run.wrapped32 += first >> 32 != last >> 32;
}

static void check_seed(uint64_t seed)
{
    run.seed = seed;
    chance_seed((seed * CHECK_RANKS + run.ranks) * IPS_VARIANTS + run.variant);
    lanes_reset(run.ranks, CHECK_BLOCKS, run.ranks <= 4 ? 2 * WARP : WARP);
    plan();
    prepare();
    for (uint32_t r = 0; r < run.ranks; r++)
        launch(r);
    lanes_run(done);
    if (run.corrupt.done && !world.aborted)
        failed("a line that was changed under way is taken for data");
    if (!world.aborted) {
        judge_end();
        judge_uplink();
    }
    note_wraps();
}

static bool parse(int argc, char **argv)
{
    if (argc != 5 && argc != 6)
        return false;
    run.variant = IPS_VARIANTS;
    for (uint32_t v = 0; v < IPS_VARIANTS; v++)
        if (!strcmp(argv[1], names[v]))
            run.variant = v;
    run.proto = (uint32_t)ips_variant_proto((int)run.variant);
    run.ranks = (uint32_t)atoi(argv[2]);
    run.atom = argc == 6 ? (uint32_t)atoi(argv[5]) : 0;
    if (is_hierarchical(run.variant) && run.ranks != 4 && run.ranks != 6 && run.ranks != 8)
        return false; /* no groups */
    return run.variant != IPS_VARIANTS && run.ranks >= IPS_MIN_RANKS && run.ranks <= CHECK_RANKS &&
           (argc == 5 || run.atom == 8 || run.atom == 16 || run.atom == 128);
}

int main(int argc, char **argv)
{
    if (!parse(argc, argv)) {
        fprintf(stderr, "usage: checker VARIANT RANKS FIRST_SEED SEEDS [8|16|128]\n");
        for (const char *name : names)
            fprintf(stderr, "  %s\n", name);
        return 2;
    }
    run.slabs = (unsigned char *)aligned_alloc(128, run.ranks * all_bytes);
    run.control = (struct ips_control *)(run.slabs + run.ranks * slab_bytes);
    const uint64_t first = strtoull(argv[3], NULL, 10), seeds = strtoull(argv[4], NULL, 10);
    for (uint64_t i = 0; i < seeds; i++)
        check_seed(first + i);
    printf("%s, %u ranks: %llu seeds passed; %u went through a wrap of LL's flag, %u of 32 "
           "bits\n", names[run.variant], run.ranks, (unsigned long long)seeds, run.wrapped,
           run.wrapped32);
    if (seeds >= 100 && (!run.wrapped32 || (run.proto == IPS_LL && !run.wrapped)))
        failed("these seeds have not gone through the wraps");
    if (seeds >= 100 && is_hierarchical(run.variant) && !run.apart)
        failed("no groups were seen to keep apart");
    if (seeds >= 100 && !run.seen)
        failed("no rank has seen what the others had done");
    free(run.slabs);
    return 0;
}
