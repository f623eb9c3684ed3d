/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel is told where ranks do not stand by number: each position's mailbox is
 * that of the rank there, so that a rank polls its own memory and writes to its
 * neighbor's. And whose leaving a rank waits for at its end: that neighbor's. On a driver
 * that is made up here. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/engine_private.h"
#include "tests/unit/check.h"

#define RANKS 4
#define PAGES (1 + 2 * IPS_SEGMENT_SLOTS)

static const struct ips_lineup lineup = {{2, 0, 3, 1}, 2};
static struct ips_allreduce_args launched;
static unsigned events_destroyed;

static int get_current(gpu_context *context)
{
    *context = NULL;
    return GPU_SUCCESS;
}
static int get_capture(gpu_stream stream, int *status, uint64_t *id, gpu_graph *graph,
                       const gpu_node **dependencies, size_t *count)
{
    (void)stream, (void)id, (void)graph, (void)dependencies, (void)count;
    *status = GPU_CAPTURE_NONE;
    return GPU_SUCCESS;
}
static int launch(gpu_function function, unsigned grid_x, unsigned grid_y,
                  unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                  unsigned shared, gpu_stream stream, void **parameters, void **extra)
{
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x,
        (void)block_y;
    (void)block_z, (void)shared, (void)stream, (void)extra;
    memcpy(&launched, parameters[0], sizeof launched);
    return GPU_SUCCESS;
}
static int record_event(gpu_event event, gpu_stream stream)
{
    (void)event, (void)stream;
    return GPU_SUCCESS;
}
static int query_event(gpu_event event)
{
    (void)event;
    return GPU_SUCCESS;
}
static int destroy_event(gpu_event event)
{
    (void)event;
    events_destroyed++;
    return GPU_SUCCESS;
}
static int exchange_mode(int *mode)
{
    (void)mode;
    return GPU_SUCCESS;
}
static int create_stream(gpu_stream *stream, unsigned flags)
{
    (void)flags;
    *stream = NULL;
    return GPU_SUCCESS;
}
static int use_stream(gpu_stream stream)
{
    (void)stream;
    return GPU_SUCCESS;
}
static int unregister(void *at)
{
    (void)at;
    return GPU_SUCCESS;
}
/* Steps that no credit has come for: all ones in the head, nothing in the mailbox. */
static int read_device(void *to, gpu_ptr from, size_t bytes, gpu_stream stream)
{
    (void)from, (void)stream;
    memset(to, bytes == sizeof(struct ips_head) ? 1 : 0, bytes);
    return GPU_SUCCESS;
}

static const struct ips_gpu_api gpu = {.cuCtxGetCurrent = get_current,
                                       .cuStreamGetCaptureInfo = get_capture,
                                       .cuLaunchKernel = launch,
                                       .cuEventRecord = record_event,
                                       .cuEventQuery = query_event,
                                       .cuEventDestroy = destroy_event,
                                       .cuThreadExchangeStreamCaptureMode = exchange_mode,
                                       .cuStreamCreate = create_stream,
                                       .cuStreamDestroy = use_stream,
                                       .cuStreamSynchronize = use_stream,
                                       .cuMemHostUnregister = unregister,
                                       .cuMemcpyDtoHAsync = read_device};
static struct ips_device device = {.gpu = &gpu};
static struct ips_control control;

static gpu_ptr mailbox_of(int rank)
{
    return 0x1000 * (gpu_ptr)(rank + 1);
}

/* The rank at that position, as bringup.c leaves it; all ranks are here and well. */
static struct ips_engine *make_engine(int position)
{
    struct ips_engine *engine = calloc(1, sizeof *engine);
    void *base = mmap(NULL, PAGES * IPS_RECORD_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!engine || base == MAP_FAILED)
        exit(2);
    engine->device = &device;
    engine->lineup = lineup;
    engine->position = position;
    engine->channels = 1;
    engine->order.event = (gpu_event)&device;
    engine->slab.device = &device;
    engine->slab.control = &control;
    engine->slab.exported = 1;
    engine->segment.base = base;
    engine->segment.fd = -1;
    engine->segment.nranks = RANKS;
    engine->segment.rank = engine->segment.slot = lineup.rank[position];
    for (int rank = 0; rank < RANKS; rank++) {
        struct ips_record *record = ips_segment_slot(&engine->segment, rank);
        engine->segment.slot_of[rank] = rank;
        engine->slab.mailbox[rank] = mailbox_of(rank);
        ips_record_identify(record);
        ips_record_set_state(record, IPS_RECORD_VOTED);
    }
    return engine;
}

static void check_launch(int position)
{
    struct ips_engine *engine = make_engine(position);
    const struct ips_allreduce call = {
        .count = 1, .type = IPS_FLOAT32, .channels = 1, .threads = 32};
    int captured, rank = engine->segment.rank;
    memset(&launched, 0xff, sizeof launched);
    CHECK(ips_engine_set_group(engine, 3) == -EINVAL && !ips_engine_set_group(engine, 2));
    CHECK(!ips_engine_allreduce(engine, &call, &captured), "position %d", position);
    CHECK(launched.rank == (uint32_t)position && launched.nranks == RANKS, "%u",
          launched.rank);
    CHECK((gpu_ptr)(uintptr_t)launched.mailbox[position] == mailbox_of(rank),
          "rank %d polls another's", rank);
    for (int i = 0; i < RANKS; i++) {
        CHECK(launched.peer[i] == lineup.rank[i], "position %d", i);
        CHECK((gpu_ptr)(uintptr_t)launched.mailbox[i] == mailbox_of(lineup.rank[i]),
              "position %d", i);
    }
    CHECK(launched.group == 2, "%u", launched.group);
    munmap(engine->segment.base, PAGES * IPS_RECORD_BYTES);
    free(engine);
}

/* The slab is taken down where who may still write has left, else it is kept. */
static void check_end(int position, int leaves)
{
    struct ips_engine *engine = make_engine(position);
    const int next = lineup.rank[(position + 1) % RANKS], own = engine->segment.rank;
    ips_record_set_state(ips_segment_slot(&engine->segment, leaves), IPS_RECORD_CLOSED);
    events_destroyed = 0;
    ips_engine_destroy(engine);
    CHECK(events_destroyed == (leaves == next), "rank %d ends, %d has left, %d is next",
          own, leaves, next);
}

/* With groups three ranks may still write: the next ones of all, inside and between. */
static void check_end_grouped(int position)
{
    for (int who = 0; who < 1 << RANKS; who++) {
        struct ips_engine *engine = make_engine(position);
        const int inside = position ^ 1, between = (position + 2) % RANKS;
        const int writers = 1 << lineup.rank[(position + 1) % RANKS] |
                            1 << lineup.rank[inside] | 1 << lineup.rank[between];
        CHECK(!ips_engine_set_group(engine, 2));
        for (int rank = 0; rank < RANKS; rank++)
            if (who >> rank & 1)
                ips_record_set_state(ips_segment_slot(&engine->segment, rank),
                                     IPS_RECORD_CLOSED);
        if ((who & writers) != writers) /* it waits two seconds: only some of them */
            if (who != (writers & (writers - 1)) && who != (writers & ~(1 << lineup.rank[between])))
                continue;
        events_destroyed = 0;
        ips_engine_destroy(engine);
        CHECK(events_destroyed == ((who & writers) == writers), "position %d, %x have left of %x",
              position, (unsigned)who, (unsigned)writers);
    }
}

int main(void)
{
    for (int position = 0; position < RANKS; position++) {
        check_launch(position);
        check_end(position, lineup.rank[(position + 1) % RANKS]);
    }
    check_end_grouped(0);
    check_end_grouped(3);
    check_end(0, 3); /* not the rank after 2: that is 0 */
    return check_result();
}
