/* SPDX-License-Identifier: Apache-2.0 */
/* Plain accesses of the device code, seen through the compiler's hooks for ThreadSanitizer:
 * two accesses to the same 8 bytes, one of them a write, must be ordered (vector clocks of
 * memory.cpp). Watched are the user's buffers, what a block shares, and the heads of the
 * slabs; a plain access to the rest of a slab is an error in itself. */
#include <string.h>

#include "kernels/mem_check.h"
#include "kernels/wire.h"
#include "tests/checker/checker.h"

#define USER_CELLS (CHECK_USER_BYTES / 8)
#define SHARED_CELL 4 /* bytes */
#define SHARED_CELLS (CHECK_SHARED_BYTES / SHARED_CELL)

struct cell {
    struct moment wrote, read;
};

struct shared_cell {
    struct moment wrote;
    uint32_t read[4 * WARP]; /* epochs of the block's lanes */
};

struct buffer {
    unsigned char *begin;
    size_t bytes;
    struct cell cell[USER_CELLS];
};

static unsigned char *slab_base;
static size_t slab_stride, slab_head;
static struct cell heads[CHECK_RANKS][1024];
static struct shared_cell shared_cells[CHECK_RANKS * CHECK_BLOCKS][SHARED_CELLS];
static struct buffer buffers[2 * CHECK_RANKS];
alignas(128) static unsigned char user[2 * CHECK_RANKS][CHECK_USER_BYTES];

void races_reset(unsigned char *slabs, size_t slab_bytes, size_t head_bytes)
{
    slab_base = slabs;
    slab_stride = slab_bytes;
    slab_head = head_bytes;
    memset(heads, 0, sizeof heads);
    memset(shared_cells, 0, sizeof shared_cells);
}

unsigned char *races_user(uint32_t rank, uint32_t which, size_t offset, size_t bytes)
{
    struct buffer *buffer = &buffers[2 * rank + which];
    if (offset + bytes > CHECK_USER_BYTES)
        failed("the checker's buffers are too small");
    buffer->begin = user[2 * rank + which] + offset;
    buffer->bytes = bytes;
    memset(buffer->cell, 0, (bytes + 7) / 8 * sizeof buffer->cell[0]);
    return buffer->begin;
}

static void need_order(struct moment before, const char *what, const char *where, size_t at)
{
    if (!clock_after(world.current, HAPPENED, before))
        failed("race: rank %u thread %u %s at %zu of %s, unordered with thread %u",
               world.current->rank, world.current->thread, what, at, where,
               world.lane[before.lane].thread);
}

static void touch(struct cell *cell, bool write, const char *where, size_t at)
{
    const struct moment now = {world.current->index, world.current->epoch};
    need_order(cell->wrote, write ? "writes" : "reads", where, at);
    if (write) {
        need_order(cell->read, "writes", where, at);
        cell->wrote = now;
    } else {
        cell->read = now;
    }
}

static void touch_shared(struct shared_cell *cell, bool write, size_t at)
{
    const uint32_t first = world.block[world.current->block].first;
    need_order(cell->wrote, write ? "writes" : "reads", "shared memory", at);
    if (!write) {
        cell->read[world.current->thread] = world.current->epoch;
        return;
    }
    for (uint32_t t = 0; t < world.threads_max; t++)
        need_order({first + t, cell->read[t]}, "writes", "shared memory", at);
    cell->wrote = {world.current->index, world.current->epoch};
}

static void access_user(size_t at, size_t bytes, bool write)
{
    const struct buffer *buffer = &buffers[at / CHECK_USER_BYTES];
    const size_t in = (size_t)(&user[0][0] + at - buffer->begin);
    if (in >= buffer->bytes || bytes > buffer->bytes - in)
        failed("rank %u: %zu bytes outside of a user's buffer", world.current->rank, bytes);
    if (at / CHECK_USER_BYTES / 2 != world.current->rank)
        failed("rank %u uses the buffer of another rank", world.current->rank);
    if (write)
        memory_need_life("writes to a user's buffer");
    for (size_t cell = in / 8; cell <= (in + bytes - 1) / 8; cell++)
        touch(&buffers[at / CHECK_USER_BYTES].cell[cell], write, "a user's buffer", cell * 8);
}

static void access_slab(size_t at, size_t bytes, bool write)
{
    const size_t in = at % slab_stride;
    if (in + bytes > slab_head)
        failed("rank %u: plain access to what peers share, at %zu", world.current->rank, in);
    if (at / slab_stride != world.current->rank)
        failed("rank %u: plain access to the slab of another rank", world.current->rank);
    if (write && in >= offsetof(struct ips_head, call)) /* IPS_STEP_DEAD is the dead's to write */
        memory_need_life("writes to the slab's head");
    for (size_t cell = in / 8; cell <= (in + bytes - 1) / 8; cell++)
        touch(&heads[world.current->rank][cell], write, "the slab's head", cell * 8);
}

static void access(const void *address, size_t bytes, bool write)
{
    const unsigned char *p = (const unsigned char *)address;
    size_t at = (size_t)(p - &user[0][0]);
    if (at < sizeof user) {
        access_user(at, bytes, write);
        return;
    }
    at = (size_t)(p - &lanes_shared[0][0]);
    if (at < sizeof lanes_shared) {
        lanes_pause();
        const size_t in = at % CHECK_SHARED_BYTES;
        const bool tells = in == CHECK_SHARED_DEAD ||
                           (in >= IPS_SHARED_ANY && in < IPS_SHARED_ANY + IPS_SHARED_ANY_BYTES);
        if (!write && tells && *p)
            world.current->dead = true;
        if (world.aborted) /* ips_ring_shared.dead goes from 0 to 1 at any time */
            return;
        for (size_t i = 0; i < bytes; i += SHARED_CELL)
            touch_shared(&shared_cells[at / CHECK_SHARED_BYTES]
                                      [(at + i) % CHECK_SHARED_BYTES / SHARED_CELL],
                         write, at % CHECK_SHARED_BYTES);
        return;
    }
    at = (size_t)(p - slab_base);
    if (at < slab_stride * world.ranks) {
        lanes_pause();
        access_slab(at, bytes, write);
    }
}

/* What the compiler calls. */
#define HOOKS(bytes)                                                                       \
    extern "C" void __tsan_read##bytes(const void *p)                                      \
    {                                                                                      \
        access(p, bytes, false);                                                           \
    }                                                                                      \
    extern "C" void __tsan_write##bytes(void *p)                                           \
    {                                                                                      \
        access(p, bytes, true);                                                            \
    }                                                                                      \
    extern "C" void __tsan_unaligned_read##bytes(const void *p)                            \
    {                                                                                      \
        access(p, bytes, false);                                                           \
    }                                                                                      \
    extern "C" void __tsan_unaligned_write##bytes(void *p)                                 \
    {                                                                                      \
        access(p, bytes, true);                                                            \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" void __tsan_read_range(const void *p, size_t bytes)
{
    access(p, bytes, false);
}

extern "C" void __tsan_write_range(void *p, size_t bytes)
{
    access(p, bytes, true);
}

extern "C" void __tsan_init(void)
{
}

extern "C" void __tsan_func_entry(void *)
{
}

extern "C" void __tsan_func_exit(void)
{
}
