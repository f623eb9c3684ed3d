/* SPDX-License-Identifier: Apache-2.0 */
/* Names a wrong element so that the run can be repeated and the call found. */
#include "tests/soak/report.h"

#include <stdio.h>

#include "policy/policy.h"

static const char *const whats[] = {"",
                                    "input changed: ", "byte before the output changed: ",
                                    "byte after the output changed: "};
static const char *const values[] = {"random", "exact", "special"};

/* A captured call is told by its graph, the replay and its place there. */
static void print_number(const struct soak_options *o, uint64_t number)
{
    struct soak_batch batch;
    uint64_t serial = number >> 40, rest = number & (((uint64_t)1 << 40) - 1);
    if (!serial) {
        printf("eager call %llu", (unsigned long long)rest);
        return;
    }
    soak_plan_graph(o, serial - 1, &batch);
    printf("graph %llu replay %llu call %llu", (unsigned long long)serial - 1,
           (unsigned long long)(rest / batch.ncalls),
           (unsigned long long)(rest % batch.ncalls));
}

static void print_values(const struct soak_first *first)
{
    const struct soak_payload *p = &first->payload;
    const struct soak_expected *e = &first->expected;
    if (first->what != SOAK_RESULT || !soak_is_float(p->type))
        printf("expected 0x%llx, got 0x%llx", (unsigned long long)e->bits,
               (unsigned long long)first->got);
    else
        printf("expected %.17g within %.3g, got %.17g (0x%llx)", e->value, e->bound,
               soak_value(p->type, first->got), (unsigned long long)first->got);
}

void soak_report_wrong(const struct soak_options *o, unsigned rank, uint64_t round,
                       const struct soak_tally *tally)
{
    const struct soak_first *first = &tally->first;
    const struct soak_payload *p = &first->payload;
    flockfile(stdout);
    printf("WRONG: seed %llu ranks %u round %llu: ", (unsigned long long)o->seed,
           o->nranks, (unsigned long long)round);
    print_number(o, first->number);
    printf(", %s %s (%s), rank %u element %llu: %s", ips_type_name((int)p->type),
           ips_op_name((int)p->op), values[p->values], rank,
           (unsigned long long)first->element, whats[first->what]);
    print_values(first);
    printf("; %llu wrong elements\n", (unsigned long long)tally->wrong);
    fflush(stdout);
    funlockfile(stdout);
}

void soak_report_stuck(const struct soak_options *o, unsigned rank, uint64_t round)
{
    printf("STUCK: seed %llu ranks %u round %llu: rank %u\n", (unsigned long long)o->seed,
           o->nranks, (unsigned long long)round, rank);
    fflush(stdout);
}
