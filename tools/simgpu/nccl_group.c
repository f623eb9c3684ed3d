/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: a thread's calls between ncclGroupStart and the outermost ncclGroupEnd are kept
 * and run there, inits first, then each communicator's collectives, then its sends and
 * receives as one. The first error drops them all and is what ncclGroupEnd returns. */
#include <stdlib.h>

#include "tools/simgpu/nccl_sim.h"

SIM_NCCL(ncclResult_t, ncclGroupStart, (void));
SIM_NCCL(ncclResult_t, ncclGroupEnd, (void));
SIM_NCCL(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * info));

static __thread struct group {
    int depth;
    ncclResult_t error;
    struct sim_job *jobs, **last_job;
    struct sim_init *inits, **last_init;
} group;

ncclResult_t sim_group_fail(ncclResult_t result)
{
    if (group.depth && !group.error)
        group.error = result;
    return sim_nccl_error(result, "invalid argument or failed call");
}

ncclResult_t sim_group_add_job(const struct sim_job *job)
{
    struct sim_job *copy = malloc(sizeof *copy);
    if (!copy)
        return sim_group_fail(ncclSystemError);
    *copy = *job;
    copy->next = NULL;
    if (!group.depth)
        return sim_launch(job->comm, copy);
    if (!group.jobs)
        group.last_job = &group.jobs;
    *group.last_job = copy;
    group.last_job = &copy->next;
    return ncclSuccess;
}

ncclResult_t sim_group_add_init(struct sim_init *init)
{
    if (!group.depth)
        return sim_inits_run(init);
    if (!group.inits)
        group.last_init = &group.inits;
    *group.last_init = init;
    group.last_init = &init->next;
    return ncclSuccess;
}

ncclResult_t pncclGroupStart(void)
{
    SIM_NCCL_ENTER("depth=%d", group.depth);
    group.depth++;
    return ncclSuccess;
}

/* Takes the next communicator's jobs, in their order, out of the list. */
static struct sim_job *take_jobs(struct sim_job **jobs, struct ncclComm *comm)
{
    struct sim_job *taken = NULL, **last = &taken;
    while (*jobs) {
        struct sim_job *job = *jobs;
        if (job->comm == comm) {
            *jobs = job->next;
            job->next = NULL;
            *last = job;
            last = &job->next;
        } else {
            jobs = &job->next;
        }
    }
    return taken;
}

static void drop(struct group *all)
{
    while (all->jobs) {
        struct sim_job *next = all->jobs->next;
        free(all->jobs);
        all->jobs = next;
    }
    while (all->inits) {
        struct sim_init *next = all->inits->next;
        free(all->inits);
        all->inits = next;
    }
}

/* Work is launched for all communicators before anything is waited for. */
static ncclResult_t run(struct group *all)
{
    ncclResult_t result = all->inits ? sim_inits_run(all->inits) : ncclSuccess;
    all->inits = NULL;
    while (all->jobs && (result == ncclSuccess || result == ncclInProgress)) {
        struct ncclComm *comm = all->jobs->comm;
        ncclResult_t launched = sim_launch(comm, take_jobs(&all->jobs, comm));
        if (launched)
            result = launched;
    }
    drop(all);
    return result;
}

static ncclResult_t close_group(int simulate)
{
    if (!group.depth)
        return sim_nccl_error(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth)
        return ncclSuccess;
    struct group all = group;
    group = (struct group){0};
    if (all.error || simulate)
        drop(&all);
    return all.error || simulate ? all.error : run(&all);
}

ncclResult_t pncclGroupEnd(void)
{
    SIM_NCCL_ENTER("depth=%d", group.depth);
    return close_group(0);
}

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *info)
{
    SIM_NCCL_ENTER("depth=%d", group.depth);
    if (info)
        info->estimatedTime = 0;
    return close_group(1);
}
