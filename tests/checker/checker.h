/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the protocol checker and what they share: lanes.cpp runs lanes in an order
 * that the seed chooses, memory.cpp is the memory between ranks, races.cpp watches plain
 * accesses; the driver plans calls and judges results: checker.cpp those of AllReduce,
 * probe.cpp the probe. */
#ifndef CHECKER_H
#define CHECKER_H

#include <stddef.h>
#include <stdint.h>

#define CHECK_RANKS 8
#define CHECK_BLOCKS 2   /* per rank */
#define CHECK_LANES 1024 /* of all ranks; one more is the host */
#define CHECK_USER_BYTES (20 * 1024)
#define CHECK_SHARED_BYTES 192
#define CHECK_SHARED_DEAD 16 /* where a block's thread 0 tells that it saw the abort */
#define WARP 32

struct atom;
struct snapshot;

/* What a lane may know of the others, each by a vector clock. */
enum order {
    HAPPENED, /* what they have done is visible: by release and acquire, or a barrier */
    READ,     /* what they have read is read: also by a line that tells itself that it is
               * there, since no store begins before the loads that decide on it have ended */
    ORDERS,
};

/* When a lane did something: its index and its epoch then. Epoch 0 is before everything. */
struct moment {
    uint32_t lane, epoch;
};

/* The last load of these 16 bytes, and so the one whose values are used. */
#define LOADS_MAX 64
struct load {
    struct atom *atom;
    uint32_t which[2]; /* version of each half */
};

struct lane {
    void *context;
    uint32_t index, rank, block, thread; /* block: of all ranks */
    uint32_t ready_at;                   /* place in its rank's list */
    uint32_t epoch;
    bool dead; /* has seen the abort word, or was told: it moves no more data */
    bool dirty[ORDERS]; /* has learned since the block last met: its clock is its own */
    uint32_t loads;
    struct load load[LOADS_MAX]; /* not settled yet */
    struct snapshot *sent;       /* what its stores carry, until it learns more; or NULL */
    uint32_t clock[ORDERS][CHECK_LANES];
};

struct block {
    uint32_t live, arrived, first; /* lanes; index of the first one */
    bool tells; /* thread 0 is the only one to see the abort word, and tells the others */
    uint32_t clock[ORDERS][CHECK_LANES]; /* what all lanes of the block have in common */
};

/* What a seed decides about the adversary. */
struct temper {
    uint32_t stale;  /* of 256 loads, how many look for an older value */
    uint32_t burst;  /* most steps of a lane in one go */
    uint32_t starve; /* of 256 phases, how many leave out a rank */
    uint32_t atom;   /* bytes that are never torn: 8, 16, or a line of 128 */
};

typedef void lane_fn(const void *parameters);

struct world {
    uint32_t ranks, blocks_max, threads_max, lanes;
    struct temper temper;
    uint64_t ticks;
    uint32_t quiet; /* polls since anything changed */
    uint32_t patience; /* polls of each lane without change that make a deadlock */
    bool aborted;   /* by the host */
    bool faulty;    /* a link does what it should not: stores may collide */
    bool fresh;     /* nothing changes: loads return the newest value */
    size_t slabs_bytes; /* of the shared memory; behind it is the host's */
    size_t slab_bytes;  /* of one rank */
    bool (*lines)(size_t at); /* whether all words of this line are stored together */
    bool (*inbox)(size_t at); /* whether it is written again without a credit */
    const uint32_t *abort_word[CHECK_RANKS];
    struct lane *current;
    struct lane lane[CHECK_LANES + 1];
    struct block block[CHECK_RANKS * CHECK_BLOCKS + 1]; /* the last one is the host's */
};
extern struct world world;

/* lanes.cpp. Ranks start with lanes_launch; whenever one has ended, `done` is called and may
 * launch it again. lanes_run returns when no lane lives. */
void lanes_reset(uint32_t ranks, uint32_t blocks_max, uint32_t threads_max);
void lanes_launch(uint32_t rank, lane_fn *fn, const void *parameters, uint32_t blocks,
                  uint32_t threads);
void lanes_run(void (*done)(uint32_t rank));
extern unsigned char lanes_shared[CHECK_RANKS * CHECK_BLOCKS][CHECK_SHARED_BYTES];
void lanes_be_host(void); /* between two lanes_run: loads are the host's */
void lanes_pause(void); /* another lane may go on here */
uint32_t lanes_first(uint32_t block); /* index of its first lane */
void lanes_changed(uint32_t rank); /* something that its lanes may wait for */
uint64_t chance(void);  /* the seed's next random number */
void chance_seed(uint64_t seed);
void chance_temper(void); /* how the adversary is, but for the atom */

/* memory.cpp. */
void memory_reset(unsigned char *slabs, size_t bytes);
void memory_forget_lanes(void); /* before the lanes of the next seed */
void memory_set(const void *address, uint64_t value); /* as if it had always been there */
uint64_t memory_newest(const void *address);
void memory_settle(void); /* what the current lane has loaded, it has used */
void memory_need_life(const char *what); /* of the current lane */
bool clock_after(const struct lane *lane, enum order order, struct moment moment);
void clock_barrier(struct block *block, uint32_t lanes);
void clock_kernel_end(uint32_t rank);

/* races.cpp. */
void races_reset(unsigned char *slabs, size_t slab_bytes, size_t head_bytes);
/* The rank's buffer number `which` begins `offset` bytes into its room, and is new. */
unsigned char *races_user(uint32_t rank, uint32_t which, size_t offset, size_t bytes);

/* The driver: nothing changes any more. Returns whether that is what the plan wants, and has
 * done something about it. */
bool driver_stuck(void);
void driver_poll(void); /* a poll has failed */
/* Two words are about to be stored, so many bytes into the slabs: the plan may change them. */
void driver_store16(size_t at, uint64_t *low, uint64_t *high);
/* Likewise one word: returns where it goes, or NULL when it is lost. */
uint64_t *driver_store(uint64_t *address, uint64_t *value);

/* Prints what went wrong, and how to see it again; ends the process. */
void failed(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
