/* SPDX-License-Identifier: Apache-2.0 */
/* Groups. Every start and end is forwarded, so NCCL's own depth stays exact; ours follows
 * it. All state belongs to the thread, and is empty while no group is open.
 *
 * NCCL joins the streams of a group, as if it were one operation posted on each of them:
 * those of one communicator, never those of different ones (ncclLaunchPrepare in
 * enqueue.cc), which could make ranks wait in a circle. Where the engine took a call of a
 * communicator whose calls use several streams, they are joined alike. */
#include "shim/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/join.h"
#include "shim/errors.h"
#include "shim/process.h"
#include "shim/settle.h"

struct list {
    void *items;
    size_t count, room;
};

/* A communicator and a stream that calls on it use. */
struct use {
    struct ips_comm *comm;
    gpu_stream stream;
};

struct group {
    int depth;
    ncclResult_t error;
    struct list taken;     /* struct ips_taken */
    struct list forwarded; /* struct use, each once */
    struct list inits;     /* struct ips_init */
    struct list joined;    /* struct use, each once; made at the end */
};

static _Thread_local struct group group __attribute__((tls_model("initial-exec")));

static int list_add(struct list *list, const void *item, size_t bytes)
{
    if (list->count == list->room) {
        size_t room = list->room ? 2 * list->room : 8;
        void *items = realloc(list->items, room * bytes);
        if (!items)
            return -ENOMEM;
        list->items = items;
        list->room = room;
    }
    memcpy((char *)list->items + list->count++ * bytes, item, bytes);
    return 0;
}

int ips_group_depth(void)
{
    return group.depth;
}

void ips_group_failed(ncclResult_t result)
{
    if (group.depth > 0 && group.error == ncclSuccess)
        group.error = result;
}

ncclResult_t ips_group_answer(ncclResult_t result)
{
    if (result != ncclSuccess && result != ncclInProgress)
        ips_group_failed(result);
    return result;
}

int ips_group_add_taken(const struct ips_taken *taken)
{
    int error = list_add(&group.taken, taken, sizeof *taken);
    if (!error)
        ips_comm_hold(taken->comm);
    return error;
}

static int is_used(const struct list *list, const struct ips_comm *comm)
{
    const struct use *uses = list->items;
    for (size_t i = list->count; i-- > 0;)
        if (uses[i].comm == comm)
            return 1;
    return 0;
}

/* 1 if it is new, 0 if not, or -ENOMEM. */
static int add_use(struct list *list, struct ips_comm *comm, gpu_stream stream)
{
    const struct use *uses = list->items;
    const struct use use = {comm, stream};
    for (size_t i = list->count; i-- > 0;)
        if (uses[i].comm == comm && uses[i].stream == stream)
            return 0;
    int error = list_add(list, &use, sizeof use);
    return error ? error : 1;
}

int ips_group_add_forwarded(struct ips_comm *comm, gpu_stream stream)
{
    int added = add_use(&group.forwarded, comm, stream);
    if (added > 0)
        ips_comm_hold(comm);
    return added < 0 ? added : 0;
}

int ips_group_add_init(const struct ips_init *init)
{
    return list_add(&group.inits, init, sizeof *init);
}

static void keep_first(ncclResult_t *first, ncclResult_t result)
{
    if (*first == ncclSuccess)
        *first = result;
}

/* All of them, even after a failure: the peers wait for the others. */
static ncclResult_t launch(const struct group *ended)
{
    const struct ips_taken *taken = ended->taken.items;
    ncclResult_t first = ncclSuccess;
    for (size_t i = 0; i < ended->taken.count; i++)
        keep_first(&first, ips_taken_launch(&taken[i]));
    return first;
}

/* The streams of each communicator that the engine takes a call of. */
static ncclResult_t collect_streams(struct group *ended)
{
    const struct ips_taken *taken = ended->taken.items;
    const struct use *forwarded = ended->forwarded.items;
    int error = 0;
    for (size_t i = 0; i < ended->taken.count && error >= 0; i++)
        error = add_use(&ended->joined, taken[i].comm, taken[i].call.stream);
    for (size_t i = 0; i < ended->forwarded.count && error >= 0; i++)
        if (is_used(&ended->joined, forwarded[i].comm))
            error = add_use(&ended->joined, forwarded[i].comm, forwarded[i].stream);
    return error < 0 ? ips_result_of(error) : ncclSuccess;
}

static ncclResult_t result_of(const struct ips_comm *comm, int error)
{
    return error ? ips_engine_result(error, ips_engine_error(comm->engine)) : ncclSuccess;
}

/* The communicator's streams in the list, and what is owed to them. */
static int add_owed(struct list *owed, const struct list *list,
                    const struct ips_comm *comm, int join)
{
    const struct use *uses = list->items;
    int error = 0;
    for (size_t i = 0; i < list->count && !error; i++) {
        const struct ips_owed item = {uses[i].stream, join};
        if (uses[i].comm == comm)
            error = list_add(owed, &item, sizeof item);
    }
    return error;
}

/* Each communicator's streams wait for each other. With `marks`, first come the marks of
 * its forwarded calls; what NCCL enqueues in the background is marked and waited for when
 * it has. */
static ncclResult_t meet(const struct group *ended, struct ips_comm *comm, int marks,
                         int background)
{
    struct list owed = {0};
    int error = marks ? add_owed(&owed, &ended->forwarded, comm, 0) : 0;
    background = background && owed.count;
    if (!error)
        error = add_owed(&owed, &ended->joined, comm, 1);
    if (!error && background)
        error = ips_settle_owe(comm, owed.items, owed.count);
    else if (!error)
        error = ips_settle_pay(comm->engine, owed.items, owed.count);
    free(owed.items);
    return result_of(comm, error);
}

/* All communicators of the list. */
static ncclResult_t meet_all(const struct group *ended, const struct list *list,
                             int marks, int background)
{
    const struct use *uses = list->items;
    ncclResult_t first = ncclSuccess;
    for (size_t i = 0; i < list->count; i++) {
        const struct list before = {list->items, i, i};
        const int done =
            marks && list == &ended->joined && is_used(&ended->forwarded, uses[i].comm);
        if (!done && !is_used(&before, uses[i].comm))
            keep_first(&first, meet(ended, uses[i].comm, marks, background));
    }
    return first;
}

static ncclResult_t begin_forwarded(const struct group *ended)
{
    const struct use *uses = ended->forwarded.items;
    ncclResult_t first = ncclSuccess;
    for (size_t i = 0; i < ended->forwarded.count; i++) {
        int error = ips_engine_forward_begin(uses[i].comm->engine, uses[i].stream);
        keep_first(&first, result_of(uses[i].comm, error));
    }
    return first;
}

static void release(struct group *ended)
{
    struct ips_taken *taken = ended->taken.items;
    struct use *forwarded = ended->forwarded.items;
    for (size_t i = 0; i < ended->taken.count; i++)
        ips_comm_put(taken[i].comm);
    for (size_t i = 0; i < ended->forwarded.count; i++)
        ips_comm_put(forwarded[i].comm);
    free(ended->taken.items);
    free(ended->forwarded.items);
    free(ended->inits.items);
    free(ended->joined.items);
}

IPS_EXPORT ncclResult_t ncclGroupStart(void)
{
    ncclResult_t result;
    __typeof__(&ncclGroupStart) real = IPS_REAL(ncclGroupStart);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclGroupStart);
    if (ips_pass())
        return real();
    IPS_CALL(result, real());
    if (result == ncclSuccess)
        group.depth++;
    return result;
}

/* Takes the thread's state if this end closes the outermost group; otherwise only counts.
 */
static int close_group(struct group *ret_ended)
{
    if (group.depth != 1) {
        group.depth -= group.depth > 0;
        return 0;
    }
    *ret_ended = group;
    group = (struct group){0};
    return 1;
}

/* What stands before NCCL's part. */
static ncclResult_t begin_end(struct group *ended)
{
    ncclResult_t first = collect_streams(ended);
    keep_first(&first, meet_all(ended, &ended->joined, 0, 0));
    keep_first(&first, launch(ended));
    keep_first(&first, begin_forwarded(ended));
    return first;
}

/* What stands after it. */
static ncclResult_t end_end(const struct group *ended, int background)
{
    ncclResult_t first = meet_all(ended, &ended->forwarded, 1, background);
    keep_first(&first, meet_all(ended, &ended->joined, 1, background));
    return first;
}

/* The engine's launches, then NCCL's; then the communicators that were made. */
static ncclResult_t end_outermost(struct group *ended, __typeof__(&ncclGroupEnd) real)
{
    const int launches = ended->error == ncclSuccess;
    ncclResult_t first = launches ? begin_end(ended) : ended->error, result;
    IPS_CALL(result, real());
    if (launches)
        keep_first(&first, end_end(ended, result == ncclInProgress));
    ips_init_complete(ended->inits.items, ended->inits.count, result);
    const int good = result == ncclSuccess || result == ncclInProgress;
    return good && first != ncclSuccess ? first : result;
}

IPS_EXPORT ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t result;
    struct group ended;
    __typeof__(&ncclGroupEnd) real = IPS_REAL(ncclGroupEnd);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclGroupEnd);
    if (ips_pass())
        return real();
    if (!close_group(&ended)) {
        IPS_CALL(result, real());
        return result;
    }
    result = end_outermost(&ended, real);
    release(&ended);
    return result;
}

/* Ends the group without launching anything. */
IPS_EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    ncclResult_t result;
    struct group ended;
    __typeof__(&ncclGroupSimulateEnd) real = IPS_REAL(ncclGroupSimulateEnd);
    if (!real)
        return (ncclResult_t)ips_real_missing(IPS_SLOT_ncclGroupSimulateEnd);
    if (ips_pass())
        return real(simInfo);
    int outermost = close_group(&ended);
    IPS_CALL(result, real(simInfo));
    if (outermost) {
        ips_init_drop(ended.inits.items, ended.inits.count);
        release(&ended);
    }
    return result;
}
