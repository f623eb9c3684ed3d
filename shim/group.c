/* SPDX-License-Identifier: Apache-2.0 */
/* Groups. Every start and end is forwarded, so NCCL's own depth stays exact; ours follows
 * it. All state belongs to the thread, and is empty while no group is open.
 *
 * Not yet: NCCL joins all streams of a group before and after it; the engine's calls only
 * keep the order within their communicator. */
#include "shim/group.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim/errors.h"
#include "shim/process.h"

struct list {
    void *items;
    size_t count, room;
};

struct forwarded_item {
    struct ips_comm *comm;
    gpu_stream stream;
};

struct group {
    int depth;
    ncclResult_t error;
    struct list taken;     /* struct ips_taken */
    struct list forwarded; /* struct forwarded_item */
    struct list inits;     /* struct ips_init */
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

int ips_group_add_taken(const struct ips_taken *taken)
{
    int error = list_add(&group.taken, taken, sizeof *taken);
    if (!error)
        ips_comm_hold(taken->comm);
    return error;
}

int ips_group_add_forwarded(struct ips_comm *comm, gpu_stream stream)
{
    const struct forwarded_item *items = group.forwarded.items;
    for (size_t i = 0; i < group.forwarded.count; i++)
        if (items[i].comm == comm && items[i].stream == stream)
            return 0;
    struct forwarded_item item = {comm, stream};
    int error = list_add(&group.forwarded, &item, sizeof item);
    if (!error)
        ips_comm_hold(comm);
    return error;
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

typedef int side(struct ips_engine *engine, gpu_stream stream);
static ncclResult_t keep_order(const struct group *ended, side *begin_or_end)
{
    const struct forwarded_item *items = ended->forwarded.items;
    ncclResult_t first = ncclSuccess;
    for (size_t i = 0; i < ended->forwarded.count; i++) {
        struct ips_engine *engine = items[i].comm->engine;
        int error = begin_or_end(engine, items[i].stream);
        if (error)
            keep_first(&first, ips_engine_result(error, ips_engine_error(engine)));
    }
    return first;
}

static void release(struct group *ended)
{
    struct ips_taken *taken = ended->taken.items;
    struct forwarded_item *forwarded = ended->forwarded.items;
    for (size_t i = 0; i < ended->taken.count; i++)
        ips_comm_put(taken[i].comm);
    for (size_t i = 0; i < ended->forwarded.count; i++)
        ips_comm_put(forwarded[i].comm);
    free(ended->taken.items);
    free(ended->forwarded.items);
    free(ended->inits.items);
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

/* The engine's launches, then NCCL's; then the communicators that were made. */
static ncclResult_t end_outermost(struct group *ended, __typeof__(&ncclGroupEnd) real)
{
    ncclResult_t first = ended->error, result;
    if (first == ncclSuccess) {
        first = launch(ended);
        keep_first(&first, keep_order(ended, ips_engine_forward_begin));
    }
    IPS_CALL(result, real());
    if (ended->error == ncclSuccess)
        keep_first(&first, keep_order(ended, ips_engine_forward_end));
    ips_init_complete(ended->inits.items, ended->inits.count, result);
    return result == ncclSuccess ? first : result;
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
