/* SPDX-License-Identifier: Apache-2.0 */
/* The door of core/: bring up an engine for one communicator, run AllReduce on it, take
 * it down. Knows nothing of NCCL.
 *
 * Errors: functions that return int give 0 or a negative errno; the cause has been
 * logged. Threads: two threads may work on two communicators at the same time. One
 * communicator is used by one thread at a time, except for ips_engine_abort,
 * ips_engine_error and ips_engine_counts, which any thread may call at any time before
 * ips_engine_destroy. */
#ifndef IPS_CORE_ENGINE_H
#define IPS_CORE_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#include "core/gpu.h"
#include "kernels/wire.h"

#define IPS_KEY_BYTES 192      /* longest key of a communicator */
#define IPS_SETTINGS_BYTES 128 /* longest agreed settings */
#define IPS_PLAN_BYTES 512     /* longest plan */
#define IPS_REASON_BYTES 256

/* Where the ranks' mailboxes lie: IPCSHIM_TRANSPORT. */
enum ips_transport {
    IPS_TRANSPORT_AUTO = -1, /* device memory, or host memory where that does not work */
    IPS_TRANSPORT_IPC = 0,   /* device memory that the peers map by CUDA IPC */
    IPS_TRANSPORT_HOST = 1,  /* host memory that all GPUs map */
};

/* In which order the ranks stand in the ring, as rank 0 found it in the machine. */
struct ips_lineup {
    uint8_t rank[IPS_MAX_RANKS]; /* by position: each rank once */
    uint32_t group;  /* size of equal groups, see ips_ring_groups; 0: there are none */
    uint32_t uplink; /* percent of a rank's own link that a group's uplink carries; 0: not
                        known */
};

/* Makes and judges the plan, which says how the engine serves calls on such a link: bytes
 * that mean nothing to the engine. Rank 0 makes it and all ranks get the same. Called from
 * ips_bringup_poll; `context` lives until the bringup is destroyed. */
struct ips_planner {
    /* On rank 0, once for each transport that is tried. Writes at most IPS_PLAN_BYTES to
     * ret_plan and gives their number. NULL: the plan has 0 bytes. */
    size_t (*make)(const void *context, int nranks, enum ips_link link,
                   const struct ips_lineup *lineup, void *ret_plan);
    /* On every rank, before it votes: whether this plan, which another process wrote, is
     * sound. If not, all ranks decline. NULL: any is. */
    int (*is_sound)(const void *context, int nranks, enum ips_link link, const void *plan,
                    size_t plan_bytes);
    const void *context;
};

struct ips_gpu_name {
    char bus_id[32];
    struct gpu_uuid uuid;
};

/* What was measured of links before. */
enum ips_recalled { IPS_RECALLS_NOTHING, IPS_RECALLS_SOUND, IPS_RECALLS_BROKEN };

/* What one rank brings to the rendezvous. All pointers are copied from. */
struct ips_bringup_config {
    const void *key; /* the same on all ranks, and different for every communicator */
    size_t key_bytes;
    int rank;             /* in the communicator, or -1 while that is not known */
    const void *settings; /* rank 0's become the agreed ones, see struct ips_agreed */
    size_t settings_bytes;
    unsigned channels;  /* most channels a call may use, 1 to IPS_MAX_CHANNELS */
    uint64_t mem_max;   /* device memory that all engines of this process may hold */
    int links_any;      /* IPCSHIM_LINKS=any: accept NVLink, and links NVML can't judge */
    int p2p_disabled;   /* NCCL_P2P_DISABLE or NCCL_P2P_LEVEL=LOC is set */
    uint32_t report_s;  /* a wait this long is reported on stderr, once */
    uint32_t timeout_s; /* a wait this long fails the communicator; 0: none does */
    int verify;     /* calls are to be verified (core/verify.h): rank 0's is used by all, */
    int can_verify; /* if all ranks can */
    enum ips_transport transport; /* rank 0's is used by all */
    struct ips_planner planner;   /* likewise rank 0's plan */
    /* What is known of the links between these GPUs, some of which may be the same: asked of
     * rank 0, once, from ips_bringup_poll, before anything of a peer is mapped. One is broken:
     * no link is used, for the reason in ret_reason[IPS_REASON_BYTES]. All are sound: they
     * are not probed again. NULL: nothing is known. */
    enum ips_recalled (*recall)(const struct ips_gpu_name *gpus, unsigned count,
                                char *ret_reason);
};

/* What the ranks have agreed on, alike unless said otherwise. */
struct ips_agreed {
    unsigned char settings[IPS_SETTINGS_BYTES]; /* rank 0's: the config's settings_bytes */
    enum ips_link link;
    struct ips_lineup lineup;
    size_t plan_bytes;
    unsigned char plan[IPS_PLAN_BYTES];
    /* Of this rank: why the mailboxes lie in host memory though rank 0 did not ask for it,
     * or "", and the enum ips_log_level to tell it at where the engine is used. */
    char why_host[IPS_REASON_BYTES];
    int why_host_level;
};

struct ips_bringup;
struct ips_engine;

enum ips_bringup_state { IPS_BRINGUP_PENDING, IPS_BRINGUP_AGREED, IPS_BRINGUP_DECLINED };

/* Phase one, before the init call is forwarded to NCCL: writes this rank's record into
 * the communicator's shared-memory segment. Makes no CUDA call. NULL when there can be no
 * engine (the reason is logged if it is a fault, and copied to
 * ret_reason[IPS_REASON_BYTES]): the peers will then miss a record and decline. */
struct ips_bringup *ips_bringup_create(const struct ips_bringup_config *config,
                                       char *ret_reason);

/* Phase two begins: NCCL's init is complete on this rank, which is `rank` of `nranks`,
 * and whose device has this ordinal (as ncclCommCuDevice says). Never blocks. */
void ips_bringup_start(struct ips_bringup *bringup, int nranks, int rank, int device);

/* One step of the state machine; never blocks on a peer. Once it is not pending, all
 * ranks get the same answer. Bounded: 2 s without a step from a peer, 30 s in all. */
enum ips_bringup_state ips_bringup_poll(struct ips_bringup *bringup);

/* Why it was declined, for people and traces; valid until the bringup is destroyed. */
const char *ips_bringup_reason(const struct ips_bringup *bringup);

/* After AGREED: the engine, which the caller now owns, and what it was agreed with. The
 * bringup is still to be destroyed. */
struct ips_engine *ips_bringup_take(struct ips_bringup *bringup,
                                    struct ips_agreed *ret_agreed);

/* Ends a bringup in any state; NULL is allowed. Without ips_bringup_take what was set up
 * is torn down. Also for an init that NCCL failed: the peers then decline. */
void ips_bringup_destroy(struct ips_bringup *bringup);

/* One AllReduce, as the policy decided it alike on all ranks. */
struct ips_allreduce {
    const void *in; /* device memory, count elements, aligned to the element */
    void *out;      /* likewise; in itself, or apart from it */
    uint64_t count; /* elements; 0 is done at once */
    enum ips_type type;
    enum ips_op op;
    enum ips_variant variant;
    unsigned channels; /* from 1 on; at most ips_engine_channels() are used */
    unsigned threads;  /* per channel: a multiple of 32, see ips_variant_max_threads() */
    gpu_stream stream;
};

/* Before its first call, alike on all ranks: each so many ranks, neighbours by position, are a
 * group (see ips_groups_valid()), which hierarchical calls need. 0: there are none. -EINVAL
 * where that can't be. */
int ips_engine_set_group(struct ips_engine *engine, unsigned group);

/* Enqueues it, in issue order with all earlier calls on this communicator, taken or
 * forwarded, whatever their stream. Never waits on the host. *ret_captured: the stream is
 * being captured. -EINVAL: the stream or its capture can't be used, or there are no groups;
 * nothing was enqueued. -EIO after a failure or an abort. */
int ips_engine_allreduce(struct ips_engine *engine, const struct ips_allreduce *call,
                         int *ret_captured);

/* Around every other call on the communicator that enqueues work on `stream` and is
 * forwarded to NCCL: keeps it in issue order with the engine's calls. -EIO after a
 * failure: the call must not be made, since a peer may never make it. */
int ips_engine_forward_begin(struct ips_engine *engine, gpu_stream stream);
int ips_engine_forward_end(struct ips_engine *engine, gpu_stream stream);

/* Makes every wait of a running kernel end; the communicator stays unusable. Any thread.
 */
void ips_engine_abort(struct ips_engine *engine);

/* 0, or the negative errno that the engine failed with, after which it takes no calls and
 * its running kernels end: -ECANCELED after an abort; -EOWNERDEAD, -ECONNRESET: a peer
 * has ended, or has given the communicator up; -ETIMEDOUT; -EPROTO: the ranks' calls
 * differ; -EBADMSG: a result was found to be wrong; -EIO: the driver failed. What one
 * rank fails with, all fail with, but that another's -EIO is -ECONNRESET. */
int ips_engine_error(const struct ips_engine *engine);

/* What its data crosses; IPS_LINK_HOST takes at most IPS_HOST_CHANNELS channels. */
enum ips_link ips_engine_link(const struct ips_engine *engine);

/* Most channels that a call uses: the config's, a link's, or as many as let the blocks of all
 * ranks on one GPU run at once. */
unsigned ips_engine_channels(const struct ips_engine *engine);

/* Completed executions of captured calls (replays of graphs) by variant and size class, as
 * the device counted them: index variant * IPS_SIZE_CLASSES + floor(log2(bytes)).
 * ret_counts[IPS_COUNTERS]. */
void ips_engine_counts(const struct ips_engine *engine, uint64_t *ret_counts);

/* Waits for this rank's enqueued calls (not for peers beyond those), closes the peers'
 * memory and frees what no peer can still write to; the rest is freed when the last peer
 * has closed it. After a failure, and where graphs captured calls (they may outlive the
 * communicator, as with NCCL), it is kept until the process ends. NULL is allowed. */
void ips_engine_destroy(struct ips_engine *engine);

/* Whether the stream is being captured; an unusable stream reads as not captured. */
int ips_stream_captured(gpu_stream stream);

/* After fork, in the child: forget everything without touching the driver. */
void ips_core_child(void);
/* The process ends: leaves no name in /dev/shm. Calls no driver. */
void ips_core_exit(void);

#endif
