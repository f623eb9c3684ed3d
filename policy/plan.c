/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans. At some sizes the best candidate is looked for, where there are
 * measurements of this machine among these, else among all by the model. Between two
 * sizes the larger one's candidate serves; but what lies between a size at which the
 * engine wins and one at which it does not was not shown to be faster, and stays with
 * NCCL. */
#include "policy/plan.h"

#include <string.h>

#define LEAST_BYTES 512u /* of the model's sizes: below, a call takes as long */
#define MODEL_SIZES 22   /* powers of two, up to 1 GB */

static int is_forced(const struct ips_policy_settings *s)
{
    return (s->algo >= 0 && s->algo < IPS_ALGOS) ||
           (s->proto >= 0 && s->proto < IPS_PROTOS);
}

struct ips_policy_place ips_plan_place(const struct ips_policy_settings *settings,
                                       const struct ips_policy_place *place)
{
    struct ips_policy_place ret = *place;
    if (settings->algo == IPS_HIERARCHICAL && !ret.group) {
        ret.group = ret.ranks / 2;
        ret.uplink = 0;
    }
    if (!ips_groups_valid(ret.group, ret.ranks))
        ret.group = 0;
    return ret;
}

static unsigned most_channels(const struct ips_plan_input *input)
{
    unsigned most = input->settings->max_channels;
    if (most > input->place.most_channels)
        most = input->place.most_channels;
    if (most > IPS_MAX_CHANNELS)
        most = IPS_MAX_CHANNELS;
    return most ? most : 1;
}

/* The algorithm that is asked for, or -1. Without groups the ring stands in for the
 * hierarchical one. */
static int algo_of(const struct ips_plan_input *input)
{
    const int algo = input->settings->algo;
    if (algo < 0 || algo >= IPS_ALGOS)
        return -1;
    return algo == IPS_HIERARCHICAL && !input->place.group ? IPS_RING : algo;
}

/* The protocol that is asked for, or -1; of an algorithm that does not have it, the one
 * that is nearest. */
static int proto_of(const struct ips_policy_settings *s, int algo)
{
    if (s->proto < 0 || s->proto >= IPS_PROTOS)
        return -1;
    if (algo == IPS_HIERARCHICAL)
        return IPS_SIMPLE;
    return algo > IPS_RING && s->proto == IPS_SIMPLE ? IPS_LL128 : s->proto;
}

int ips_plan_permits(const struct ips_plan_input *input, struct ips_candidate *candidate)
{
    const struct ips_policy_settings *s = input->settings;
    const int algo = ips_variant_algo((int)candidate->variant);
    const int proto = ips_variant_proto((int)candidate->variant);
    const int wanted_algo = algo_of(input), wanted = proto_of(s, wanted_algo);
    if (algo == IPS_HIERARCHICAL && !input->place.group)
        return 0;
    if (wanted_algo >= 0 && wanted_algo != algo)
        return 0;
    if (wanted >= 0 && wanted != proto)
        return 0;
    if (candidate->channels > most_channels(input))
        candidate->channels = most_channels(input);
    return 1;
}

/* Both modes count alike. */
static double product(const struct ips_times *times)
{
    return times->us[IPS_MODE_EAGER] * times->us[IPS_MODE_GRAPH];
}

/* How often two measurements of the same candidate differ: of the product of both modes.
 */
#define TIE 1.04

static void set_margins(struct ips_choice *choice, double margin)
{
    for (int mode = 0; mode < IPS_MODES; mode++)
        choice->margin[mode] = margin;
}

static int beats_nccl(const struct ips_choice *choice, const struct ips_times *times)
{
    int beats = 1;
    for (int mode = 0; mode < IPS_MODES; mode++)
        beats &= times->us[mode] <= choice->margin[mode] * choice->nccl.us[mode];
    return beats;
}

/* One that beats NCCL, launched and replayed, before one that does not; then the faster.
 * Of two that are as fast, the one that leaves more of the GPU to others. */
static void offer(struct ips_choice *choice, const struct ips_candidate *candidate,
                  const struct ips_times *times, double tie)
{
    const int wins = beats_nccl(choice, times);
    const double new = product(times), old = product(&choice->engine);
    const int smaller = candidate->channels * candidate->threads <
                        choice->best.channels * choice->best.threads;
    if (choice->best.channels &&
        (wins != choice->wins ? wins < choice->wins
                              : new *(smaller ? 1 : tie) >= old *(smaller ? tie : 1)))
        return;
    choice->wins = wins;
    choice->best = *candidate;
    choice->engine = *times;
}

/* The row's measurement as it may serve here: with the channels, and of the hierarchical
 * algorithm the groups, that it was made with. */
static int is_measured(const struct ips_plan_input *input, unsigned i, uint64_t bytes)
{
    const struct ips_tuned_row *row = &input->tuned->row[i];
    struct ips_candidate candidate = row->candidate;
    if (ips_variant_algo((int)candidate.variant) == IPS_HIERARCHICAL &&
        input->tuned->group != input->place.group)
        return 0;
    return row->bytes == bytes && !row->nccl && ips_plan_permits(input, &candidate) &&
           candidate.channels == row->candidate.channels;
}

static void measured_nccl(const struct ips_plan_input *input, uint64_t bytes,
                          struct ips_choice *choice)
{
    for (unsigned i = 0; input->tuned && i < input->tuned->count; i++)
        if (input->tuned->row[i].nccl && input->tuned->row[i].bytes == bytes) {
            choice->nccl = input->tuned->row[i].times;
            choice->nccl_measured = 1;
        }
}

static void choose_measured(const struct ips_plan_input *input, uint64_t bytes,
                            struct ips_choice *choice)
{
    for (unsigned i = 0; input->tuned && i < input->tuned->count; i++)
        if (is_measured(input, i, bytes))
            offer(choice, &input->tuned->row[i].candidate, &input->tuned->row[i].times,
                  TIE);
    choice->engine_measured = choice->best.channels > 0;
}

static void choose_modelled(const struct ips_plan_input *input, uint64_t bytes,
                            struct ips_choice *choice)
{
    struct ips_candidate candidate;
    set_margins(choice, ips_model_margin(input->place.link, input->place.ranks));
    for (unsigned i = 0; ips_candidate_at(i, &candidate); i++) {
        if (!ips_plan_permits(input, &candidate))
            continue;
        const struct ips_times times = ips_model_engine(&input->place, bytes, &candidate);
        offer(choice, &candidate, &times, 1);
    }
}

struct ips_choice ips_plan_choose(const struct ips_plan_input *input, uint64_t bytes)
{
    struct ips_choice choice = {
        .nccl = ips_model_nccl(input->place.link, input->place.ranks, bytes)};
    measured_nccl(input, bytes, &choice);
    set_margins(&choice, choice.nccl_measured
                             ? IPS_TUNED_MARGIN
                             : ips_model_margin(input->place.link, input->place.ranks));
    if (choice.nccl_measured && bytes < IPS_TUNED_LAUNCHED_BYTES)
        choice.margin[IPS_MODE_EAGER] = IPS_TUNED_LAUNCHED_MARGIN;
    choose_measured(input, bytes, &choice);
    if (!choice.engine_measured)
        choose_modelled(input, bytes, &choice);
    return choice;
}

uint64_t ips_plan_size(const struct ips_plan_input *input, unsigned i)
{
    uint64_t last = 0;
    if (!input->tuned)
        return i < MODEL_SIZES ? (uint64_t)LEAST_BYTES << i : 0;
    for (unsigned row = 0; row < input->tuned->count; row++) {
        if (input->tuned->row[row].bytes == last)
            continue;
        last = input->tuned->row[row].bytes;
        if (!i--)
            return last;
    }
    return 0;
}

static int alike(const struct ips_plan_row *a, const struct ips_plan_row *b)
{
    return a->variant == b->variant && a->channels == b->channels &&
           a->threads == b->threads && a->why == b->why;
}

/* Appends a row, but for the last place, which is the end's. Whether it could: where one
 * finds no place, nothing larger may follow, or a later one like the last would take what
 * was left out. */
static int push(struct ips_policy_plan *plan, uint64_t up_to, struct ips_plan_row row)
{
    struct ips_plan_row *last = plan->count ? &plan->row[plan->count - 1] : NULL;
    row.up_to_bytes = up_to;
    if (last && up_to <= last->up_to_bytes)
        return 1;
    if (last && alike(last, &row))
        last->up_to_bytes = up_to;
    else if (plan->count < IPS_PLAN_ROWS - 1)
        plan->row[plan->count++] = row;
    else
        return 0;
    return 1;
}

static struct ips_plan_row nccl_row(enum ips_plan_why why)
{
    return (struct ips_plan_row){.variant = IPS_PLAN_NCCL, .why = (uint8_t)why};
}

static void finish(struct ips_policy_plan *plan, struct ips_plan_row row)
{
    row.up_to_bytes = UINT64_MAX;
    if (plan->count && alike(&plan->row[plan->count - 1], &row))
        plan->row[plan->count - 1].up_to_bytes = UINT64_MAX;
    else
        plan->row[plan->count++] = row;
}

static struct ips_plan_row engine_row(const struct ips_candidate *c,
                                      enum ips_plan_why why)
{
    return (struct ips_plan_row){.variant = (uint8_t)c->variant,
                                 .channels = (uint8_t)c->channels,
                                 .threads = (uint16_t)c->threads,
                                 .why = (uint8_t)why};
}

/* Every size up to the limit that was asked for, whatever NCCL would take. */
static void fill_asked(const struct ips_plan_input *input, struct ips_policy_plan *plan)
{
    const struct ips_policy_settings *s = input->settings;
    const enum ips_plan_why why = s->proto >= 0 && s->proto < IPS_PROTOS ? IPS_WHY_PROTO
                                  : is_forced(s)                         ? IPS_WHY_ALGO
                                                                         : IPS_WHY_ASKED;
    struct ips_plan_row row = {0};
    uint64_t size;
    for (unsigned i = 0; (size = ips_plan_size(input, i)) != 0; i++) {
        const struct ips_choice choice = ips_plan_choose(input, size);
        row = engine_row(&choice.best, why);
        push(plan, size < s->max_bytes ? size : s->max_bytes, row);
        if (size >= s->max_bytes)
            break;
    }
    if (s->max_bytes == IPS_MAX_BYTES_AUTO) {
        finish(plan, row);
        return;
    }
    push(plan, s->max_bytes, row);
    finish(plan, nccl_row(IPS_WHY_MAX_BYTES));
}

/* What is known or expected to win. */
static void fill_winning(const struct ips_plan_input *input, struct ips_policy_plan *plan)
{
    int won = 1; /* the size before; of the first row, the sizes below are like it */
    uint64_t size;
    for (unsigned i = 0; (size = ips_plan_size(input, i)) != 0; i++) {
        const struct ips_choice choice = ips_plan_choose(input, size);
        const int measured = choice.engine_measured && choice.nccl_measured;
        const struct ips_plan_row nccl =
            nccl_row(measured ? IPS_WHY_NOT_TUNED : IPS_WHY_NOT_MODEL);
        int fits;
        if (won && choice.wins)
            fits =
                push(plan, size,
                     engine_row(&choice.best, measured ? IPS_WHY_TUNED : IPS_WHY_MODEL));
        else if (choice.wins && measured) /* just that size was shown */
            fits = push(plan, size - 1, nccl) &&
                   push(plan, size, engine_row(&choice.best, IPS_WHY_TUNED));
        else
            fits = push(plan, size, nccl);
        if (!fits)
            break;
        won = choice.wins;
    }
    finish(plan, nccl_row(IPS_WHY_NOT_MODEL));
}

void ips_policy_plan_make(const struct ips_policy_settings *settings,
                          const struct ips_policy_place *place,
                          const struct ips_tuned *tuned, struct ips_policy_plan *ret)
{
    const unsigned ranks = place->ranks;
    const struct ips_plan_input input = {settings, ips_plan_place(settings, place),
                                         tuned && tuned->count ? tuned : NULL};
    memset(ret, 0, sizeof *ret);
    ret->magic = IPS_PLAN_MAGIC;
    ret->ranks = ranks <= UINT8_MAX ? (uint8_t)ranks : UINT8_MAX;
    ret->link = (uint8_t)place->link;
    if (ranks < IPS_MIN_RANKS || ranks > IPS_MAX_RANKS) {
        finish(ret,
               nccl_row(ranks < IPS_MIN_RANKS ? IPS_WHY_FEW_RANKS : IPS_WHY_MANY_RANKS));
        return;
    }
    ret->group = (uint8_t)input.place.group;
    if (!settings->max_bytes)
        finish(ret, nccl_row(IPS_WHY_MAX_BYTES));
    else if (is_forced(settings) || settings->max_bytes != IPS_MAX_BYTES_AUTO)
        fill_asked(&input, ret);
    else
        fill_winning(&input, ret);
}
