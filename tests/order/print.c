/* SPDX-License-Identifier: Apache-2.0 */
/* A program for people, one step a line. */
#include <stdio.h>

#include "policy/policy.h"
#include "tests/order/program.h"

static const char *const streams[] = {"s0",       "s1",     "s2",
                                      "blocking", "legacy", "per-thread"};

static void print_work(const struct work *work)
{
    static const char *const names[] = {"kernel",        "copy",      "set",
                                        "allreduce",     "premulsum", "allgather",
                                        "reducescatter", "broadcast"};
    printf("%s %d -> %d", names[work->kind], work->in, work->out);
    if (work_is_nccl(work))
        printf("  comm %c, %u %s, %s", 'A' + work->comm, work->count,
               ips_type_name(work->type), ips_op_name(work->op));
    else if (work->kind == WORK_KERNEL)
        printf("  %u us", work->delay_us);
    else
        printf("  %u bytes", work->count);
}

static void print_step(const struct step *step)
{
    static const char *const names[] = {"",      "record", "wait",  "sync",     "capture",
                                        "graph", "launch", "group", "group end"};
    printf("%c %-10s ", step->captured ? '0' + step->captured - 1 : ' ',
           streams[step->stream]);
    if (step->kind == STEP_WORK)
        print_work(&step->work);
    else
        printf("%s ", names[step->kind]);
    if (step->kind == STEP_RECORD || step->kind == STEP_WAIT)
        printf("event %d", step->event);
    if (step->kind == STEP_GRAPH || step->kind == STEP_LAUNCH)
        printf("%d", step->graph);
    if (step->kind == STEP_CAPTURE)
        printf("%d, mode %d", step->graph, step->mode);
    printf("\n");
}

void program_print(const struct program *program)
{
    printf("# seed 0x%llx, %u ranks, %u steps\n", (unsigned long long)program->seed,
           program->nranks, program->nsteps);
    for (unsigned i = 0; i < program->nsteps; i++) {
        printf("# %3u ", i);
        print_step(&program->step[i]);
    }
}

void program_cut(struct program *program, unsigned steps)
{
    unsigned whole = 0;
    int open = 0;
    for (unsigned i = 0; i < program->nsteps && i < steps; i++) {
        enum step_kind kind = program->step[i].kind;
        open += (kind == STEP_CAPTURE || kind == STEP_GROUP) -
                (kind == STEP_GRAPH || kind == STEP_GROUP_END);
        if (!open)
            whole = i + 1;
    }
    program->nsteps = whole;
}
