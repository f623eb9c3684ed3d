/* SPDX-License-Identifier: Apache-2.0 */
/* The memory between ranks, as weak as mem.h's contract. Every aligned 8 bytes keep their
 * last few values in the order in which they were stored. A load may return any of them
 * that is not older than one which the loading lane must have seen: by its own store, or
 * because the store happened before (vector clocks: release, acquire, barrier, kernel end),
 * or because a newer one was loaded from there already. So stores are delayed, reordered
 * and torn without bound but for the length of the history. The temper may make that weaker:
 * 16 bytes, or lines of 128, arrive at once.
 *
 * Two things are errors whatever the values: a store over one that did not happen before it,
 * and a store over data (16 bytes) that a lane has used without that use having happened
 * before: on a GPU that load may still be under way and return the new value. Words that
 * are polled only grow, so they may be stored over at any time.
 *
 * In the inboxes of one-shot and two-shot the weaker order READ is enough for the second: a
 * line that a lane has found whole tells what its sender had read when it sent the line. And
 * it tells that what its sender's earlier calls have stored is there: the end of a kernel
 * sees to that, and the flag of a line is wide enough for one call. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/mem_check.h"
#include "kernels/wire.h"
#include "tests/checker/checker.h"

#define HISTORY 4
#define LINE 128 /* bytes */

struct version {
    uint64_t value;
    uint64_t number; /* of all stores: their order */
    struct moment stored;
    struct snapshot *clock[ORDERS]; /* HAPPENED: of a release; READ: of a line; or NULL */
};

/* A lane's clock as it was once. */
struct snapshot {
    uint32_t holders;
    uint32_t clock[CHECK_LANES];
};

struct atom {
    uint32_t stores; /* version s is at [s % HISTORY] */
    uint32_t seen;   /* newest version loaded so far */
    struct moment used;
    struct version version[HISTORY];
};

/* A line that eight lanes load at once. */
struct loading {
    uint32_t which, left; /* the version, and the parts that have still to be loaded */
};

static unsigned char *base;
static size_t size, atoms_max;
static struct loading *loadings; /* of each line */
static uint64_t stores; /* so far, by anyone */
static struct atom *atoms;
static struct snapshot *ended[CHECK_RANKS]; /* what the rank's last kernel has left behind */
static struct snapshot **snapshots;         /* free ones */
static size_t snapshots_free, snapshots_max;

static struct snapshot *new_snapshot(void)
{
    if (snapshots_free)
        return snapshots[--snapshots_free];
    snapshots = (struct snapshot **)realloc(snapshots, ++snapshots_max * sizeof *snapshots);
    return (struct snapshot *)malloc(sizeof(struct snapshot));
}

/* Gives up one hold, if there is any. */
static void drop(struct snapshot **snapshot)
{
    if (*snapshot && !--(*snapshot)->holders)
        snapshots[snapshots_free++] = *snapshot;
    *snapshot = NULL;
}

static struct snapshot *hold(struct snapshot *snapshot)
{
    if (snapshot)
        snapshot->holders++;
    return snapshot;
}

void memory_forget_lanes(void)
{
    for (struct lane &lane : world.lane)
        drop(&lane.sent);
    for (struct snapshot *&snapshot : ended)
        drop(&snapshot);
}

void memory_reset(unsigned char *slabs, size_t bytes)
{
    for (size_t i = 0; i < size / 8; i++)
        for (struct version &version : atoms[i].version)
            for (struct snapshot *&clock : version.clock)
                drop(&clock);
    if (bytes / 8 > atoms_max) {
        atoms_max = bytes / 8;
        atoms = (struct atom *)realloc(atoms, atoms_max * sizeof *atoms);
        loadings = (struct loading *)realloc(loadings, (atoms_max / 16 + 1) * sizeof *loadings);
    }
    base = slabs;
    size = bytes;
    memset(atoms, 0, bytes / 8 * sizeof *atoms);
    memset(loadings, 0, (bytes / LINE + 1) * sizeof *loadings);
}

static struct atom *atom_at(const void *address)
{
    const size_t at = (size_t)((const unsigned char *)address - base);
    if (at >= size)
        failed("a primitive of mem.h is used on what no one shares");
    if (at % 8)
        failed("an access to a slab is not aligned");
    return &atoms[at / 8];
}

static struct version *newest_of(struct atom *atom)
{
    return &atom->version[atom->stores % HISTORY];
}

void memory_set(const void *address, uint64_t value)
{
    newest_of(atom_at(address))->value = value;
}

uint64_t memory_newest(const void *address)
{
    return newest_of(atom_at(address))->value;
}

static const uint32_t *clock_of(const struct lane *lane, enum order order)
{
    return lane->dirty[order] ? lane->clock[order] : world.block[lane->block].clock[order];
}

bool clock_after(const struct lane *lane, enum order order, struct moment moment)
{
    return moment.lane == lane->index ||
           moment.epoch <= clock_of(lane, order)[moment.lane];
}

/* The lane's clock as of now; what it does from now on comes later. */
static struct snapshot *snapshot_of(struct lane *lane, enum order order)
{
    struct snapshot *snapshot = new_snapshot();
    snapshot->holders = 1;
    memcpy(snapshot->clock, clock_of(lane, order), world.lanes * sizeof snapshot->clock[0]);
    snapshot->clock[lane->index] = lane->epoch++;
    return snapshot;
}

static void merge(uint32_t *into, const uint32_t *from)
{
    for (uint32_t i = 0; i < world.lanes; i++)
        into[i] = into[i] > from[i] ? into[i] : from[i];
}

/* All lanes have come: each knows now what any of them knew. */
void clock_barrier(struct block *block, uint32_t lanes)
{
    struct lane *first = &world.lane[block->first];
    for (struct lane *lane = first; lane < first + lanes; lane++) {
        for (uint32_t o = 0; o < ORDERS; o++) {
            if (lane->dirty[o])
                merge(block->clock[o], lane->clock[o]);
            block->clock[o][lane->index] = lane->epoch;
            lane->dirty[o] = false;
        }
        lane->epoch++;
        drop(&lane->sent);
    }
}

void clock_kernel_end(uint32_t rank)
{
    struct block *first = &world.block[rank * CHECK_BLOCKS];
    for (uint32_t b = 0; b < world.blocks_max; b++) {
        first[b].first = lanes_first(rank * CHECK_BLOCKS + b);
        clock_barrier(&first[b], world.threads_max);
        for (uint32_t o = 0; o < ORDERS; o++)
            merge(first->clock[o], first[b].clock[o]);
    }
    for (uint32_t b = 1; b < world.blocks_max; b++)
        memcpy(first[b].clock, first->clock, sizeof first->clock);
    drop(&ended[rank]);
    struct lane *lane = &world.lane[first->first];
    ended[rank] = snapshot_of(lane, HAPPENED);
}

/* The lane learns what the version's storer knew. */
static void learn(struct lane *lane, enum order order, const struct version *version)
{
    const struct snapshot *told = version->clock[order];
    const uint32_t storer = version->stored.lane;
    if (!told || told->clock[storer] <= clock_of(lane, order)[storer])
        return;
    if (!lane->dirty[order])
        memcpy(lane->clock[order], world.block[lane->block].clock[order],
               world.lanes * sizeof lane->clock[order][0]);
    lane->dirty[order] = true;
    merge(lane->clock[order], told->clock);
    if (order == READ)
        drop(&lane->sent);
}

void memory_need_life(const char *what)
{
    if (world.current->dead)
        failed("rank %u thread %u %s after it has seen the abort", world.current->rank,
               world.current->thread, what);
}

static size_t place_of(const struct atom *atom)
{
    return (size_t)(atom - atoms) * 8;
}

static bool in_inbox(const struct atom *atom)
{
    return world.inbox && world.inbox(place_of(atom));
}

/* What the lane used of an atom is its version `which`. */
static void use(struct lane *self, struct atom *atom, uint32_t which)
{
    const bool gone = atom->stores - which >= HISTORY;
    if (gone || atom->version[which % HISTORY].value != newest_of(atom)->value)
        failed("rank %u uses what was at %zu and has been stored over", self->rank,
               place_of(atom));
    atom->used = {self->index, self->epoch};
    if (!in_inbox(atom))
        return;
    drop(&self->sent);
    learn(self, HAPPENED, &atom->version[which % HISTORY]);
    learn(self, READ, &atom->version[which % HISTORY]);
}

/* Returns whether any of it was of a line that several lanes load. */
static bool use_all(struct lane *self)
{
    bool together = false;
    for (uint32_t i = 0; i < self->loads; i++) {
        struct atom *atom = self->load[i].atom;
        together |= in_inbox(atom) && world.lines(place_of(atom));
        for (uint32_t half = 0; half < 2 && !self->dead; half++) /* the dead leave their waits
                                                                  * with what they have */
            use(self, atom + half, self->load[i].which[half]);
    }
    self->loads = 0;
    return together;
}

/* The eight lanes of a line have found it whole together, and each stores because all of
 * them have: what one has read, all know. */
static void share(struct lane *first)
{
    uint32_t all[CHECK_LANES] = {};
    for (struct lane *lane = first; lane < first + LINE / 16; lane++) {
        merge(all, clock_of(lane, READ));
        all[lane->index] = lane->epoch++;
    }
    for (struct lane *lane = first; lane < first + LINE / 16; lane++) {
        memcpy(lane->clock[READ], all, world.lanes * sizeof all[0]);
        lane->dirty[READ] = true;
        drop(&lane->sent);
    }
}

void memory_settle(void)
{
    struct lane *self = world.current;
    if (!use_all(self))
        return;
    struct lane *first = self - self->thread % (LINE / 16);
    for (struct lane *lane = first; lane < first + LINE / 16; lane++)
        use_all(lane);
    share(first);
}

/* A load of the same place before it was a poll that failed. */
static void note_load(struct lane *self, struct atom *atom, uint32_t low, uint32_t high)
{
    uint32_t i = 0;
    while (i < self->loads && self->load[i].atom != atom)
        i++;
    if (i == LOADS_MAX)
        failed("a lane loads more than the checker keeps");
    if (i == self->loads)
        self->loads++;
    self->load[i] = {atom, {low, high}};
}

/* The oldest version that the lane may load. */
static uint32_t oldest_for(const struct lane *lane, const struct atom *atom)
{
    uint32_t oldest = atom->stores < HISTORY ? 0 : atom->stores - HISTORY + 1;
    if (oldest < atom->seen)
        oldest = atom->seen;
    uint32_t known = atom->stores;
    while (known > oldest &&
           !clock_after(lane, HAPPENED, atom->version[known % HISTORY].stored))
        known--;
    return known;
}

static uint32_t choose(const struct atom *atom)
{
    const uint32_t oldest = oldest_for(world.current, atom);
    if (oldest == atom->stores || world.fresh || chance() % 256 >= world.temper.stale)
        return atom->stores;
    return oldest + (uint32_t)(chance() % (atom->stores - oldest));
}

static const struct version *take(struct atom *atom, uint32_t which)
{
    atom->seen = which;
    return &atom->version[which % HISTORY];
}

/* Where whole lines arrive at once, whoever has loaded from one has loaded all of it: no
 * older version of any of its words is seen any more. */
static void take_line(struct atom *atom)
{
    const uint64_t number = atom->version[atom->seen % HISTORY].number;
    if (world.temper.atom < LINE)
        return;
    struct atom *first = atoms + (atom - atoms) / (LINE / 8) * (LINE / 8);
    for (struct atom *other = first; other < first + LINE / 8; other++)
        while (other->seen < other->stores &&
               other->version[(other->seen + 1) % HISTORY].number <= number)
            other->seen++;
}

/* And where the words of a line are always stored together and loaded together, by eight
 * lanes, nothing of it is seen before all of it is stored, and what the first of the eight
 * sees is what all of them see. */
static uint32_t whole_line(struct atom *atom, uint32_t which)
{
    const size_t at = place_of(atom);
    if (world.temper.atom < LINE || !world.lines(at))
        return which;
    struct loading *loading = &loadings[at / LINE];
    const uint32_t part = 1u << at % LINE / 16, oldest = oldest_for(world.current, atom);
    if (loading->left & part) {
        loading->left &= ~part;
        return loading->which < oldest ? oldest : loading->which;
    }
    struct atom *first = atoms + at / LINE * (LINE / 8);
    for (struct atom *other = first; other < first + LINE / 8; other++)
        which = which < other->stores ? which : other->stores;
    loading->which = which < oldest ? oldest : which;
    loading->left = 0xff & ~part;
    return loading->which;
}

extern "C" uint64_t check_load(const uint64_t *address, int is_acquire)
{
    lanes_pause();
    struct atom *atom = atom_at(address);
    const struct version *version = take(atom, choose(atom));
    take_line(atom);
    if (is_acquire)
        learn(world.current, HAPPENED, version);
    return version->value;
}

extern "C" void check_load16(const void *address, uint64_t *value)
{
    lanes_pause();
    struct atom *atom = atom_at(address);
    if ((uintptr_t)address % 16)
        failed("a 16-byte load is not aligned");
    uint32_t low = choose(atom), high = choose(atom + 1);
    /* Both halves are always stored together, so their versions have the same numbers. */
    if (world.temper.atom > 8 && atom[0].stores == atom[1].stores)
        low = high = whole_line(atom, low > high ? low : high);
    value[0] = take(atom, low)->value;
    value[1] = take(atom + 1, high)->value;
    take_line(atom);
    note_load(world.current, atom, low, high);
}

/* The lock of the record of a wait: it is stored over by those who try in vain, and given
 * back by the dead too. */
static bool is_lock(size_t at)
{
    return at < world.slabs_bytes &&
           at % world.slab_bytes == offsetof(struct ips_head, stuck_taken);
}

/* What a rank that waits shows the host now and then, for as long as it waits. */
static bool is_look(size_t at)
{
    const size_t in = (at - world.slabs_bytes) % sizeof(struct ips_control);
    return at >= world.slabs_bytes &&
           (in - offsetof(struct ips_control, seen) < sizeof(((struct ips_control *)0)->seen) ||
            in == offsetof(struct ips_control, looks));
}

/* What is known of the storer by its store. */
static void sign(struct version *version, struct lane *self, bool release, bool line)
{
    for (struct snapshot *&clock : version->clock)
        drop(&clock);
    version->stored = {self->index, self->epoch};
    if (release)
        version->clock[HAPPENED] = snapshot_of(self, HAPPENED);
    if (!line)
        return;
    if (!self->sent)
        self->sent = snapshot_of(self, READ);
    version->clock[READ] = hold(self->sent);
    version->clock[HAPPENED] = hold(ended[self->rank]);
}

static void store(struct atom *atom, uint64_t value, bool release)
{
    struct lane *self = world.current;
    const size_t at = place_of(atom);
    const bool line = in_inbox(atom);
    if (at < world.slabs_bytes && !is_lock(at))
        memory_need_life("stores");
    if (!is_lock(at) && !world.faulty &&
        !clock_after(self, HAPPENED, newest_of(atom)->stored))
        failed("rank %u stores at %zu over a store that did not happen before", self->rank, at);
    /* The same value (padding) may be used even before it is stored. */
    const bool same = value == newest_of(atom)->value;
    if (!same && !clock_after(self, line ? READ : HAPPENED, atom->used))
        failed("rank %u stores at %zu over what rank %u may still be reading", self->rank, at,
               world.lane[atom->used.lane].rank);
    atom->stores++;
    struct version *version = newest_of(atom);
    version->value = value;
    version->number = ++stores;
    sign(version, self, release, line);
    if ((same && is_lock(at)) || is_look(at))
        return; /* nothing has changed for anyone who waits */
    lanes_changed(at < world.slabs_bytes ? (uint32_t)(at / world.slab_bytes) : self->rank);
}

extern "C" void check_store(uint64_t *address, uint64_t value, int release)
{
    lanes_pause();
    address = driver_store(address, &value);
    if (address)
        store(atom_at(address), value, release);
}

/* A lane that stores data has done with its loads: nothing but waits' reports comes between
 * a poll and the next one. */
extern "C" void check_store16(void *address, uint64_t low, uint64_t high)
{
    struct atom *atom = atom_at(address);
    if (place_of(atom) < world.slabs_bytes)
        memory_settle();
    lanes_pause();
    if ((uintptr_t)address % 16)
        failed("a 16-byte store is not aligned");
    driver_store16(place_of(atom), &low, &high);
    store(atom, low, false);
    store(atom + 1, high, false);
}

/* Two words share 8 bytes. */
static unsigned shift_of(const uint32_t *address)
{
    return (uintptr_t)address % 8 ? 32 : 0;
}

extern "C" uint32_t check_load_word(const uint32_t *address)
{
    const unsigned shift = shift_of(address);
    const uint64_t both = check_load((const uint64_t *)(address - shift / 32), 0);
    if (address == world.abort_word[world.current->rank])
        world.current->dead |= (uint32_t)(both >> shift) != 0;
    return (uint32_t)(both >> shift);
}

extern "C" void check_store_word(uint32_t *address, uint32_t value)
{
    lanes_pause();
    const unsigned shift = shift_of(address);
    struct atom *atom = atom_at(address - shift / 32);
    const uint64_t other = newest_of(atom)->value & ~(0xffffffffull << shift);
    store(atom, other | (uint64_t)value << shift, false);
}

extern "C" uint64_t check_exchange(uint64_t *address, uint64_t value)
{
    lanes_pause();
    struct atom *atom = atom_at(address);
    const struct version *version = take(atom, atom->stores);
    const uint64_t before = version->value;
    learn(world.current, HAPPENED, version);
    store(atom, value, true);
    return before;
}
