/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stand-in libnccl.so.2 share: its own declarations of NCCL's API
 * types, communicators, and the shared-memory segment through which the ranks exchange
 * data. */
#ifndef SIM_NCCL_SIM_H
#define SIM_NCCL_SIM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "core/gpu.h"
#include "kernels/types.h"
#include "tools/simgpu/fault.h"

#define SIM_NCCL_VERSION 22809 /* 2.28.9 */
#define SIM_RANKS_MAX 64
#define SIM_CHUNK_BYTES (128 * 1024) /* two of them per rank */
#define SIM_P2P_BYTES (64 * 1024)    /* per ordered pair of ranks */
#define SIM_USER_OPS 32
#define SIM_CAPTURES 8 /* that a communicator is part of at a time */

typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress,
} ncclResult_t;
typedef int ncclDataType_t; /* enum ips_type; 10 and 11 are the 8-bit floats */
typedef int ncclRedOp_t;    /* enum ips_op; from 5 on made by ncclRedOpCreatePreMulSum */
typedef struct ncclComm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
} ncclConfig_t; /* the part that matters here */
typedef struct {
    size_t size;
    unsigned magic, version;
    float estimatedTime;
} ncclSimInfo_t;

/* NCCL exports pncclX and a weak ncclX at the same address. */
#define SIM_NCCL(type, name, parameters) \
    SIM_API type p##name parameters;     \
    SIM_API __attribute__((weak, alias("p" #name))) type name parameters

/* Every public call begins with this: counts, logs, and fails where SIMNCCL_FAIL says so.
 */
int sim_nccl_enter(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
#define SIM_NCCL_ENTER(...)                                     \
    do {                                                        \
        int error_ = sim_nccl_enter(__func__ + 1, __VA_ARGS__); \
        if (error_)                                             \
            return (ncclResult_t)error_;                        \
    } while (0)
/* Keeps the text for ncclGetLastError and gives the result back. */
ncclResult_t sim_nccl_error(ncclResult_t result, const char *text);

/* One rank's words in the segment, on lines of their own. Counters only grow. */
struct sim_slot {
    uint64_t posted; /* rounds whose chunk can be read */
    uint64_t pad0[7];
    uint64_t taken; /* rounds whose chunks were read */
    uint64_t pad1[7];
    uint64_t call[2]; /* hash of the call that a round belongs to */
    uint64_t split_posted;
    int32_t split_color[2], split_key[2];
    uint32_t present;
    int32_t pid;
    uint64_t pad2[2];
};

struct sim_pair {
    uint64_t posted, taken, bytes;
    uint64_t pad[5];
};

struct sim_segment {
    uint32_t nranks, arrived, failed, pad[13];
    struct sim_slot slot[SIM_RANKS_MAX];
    unsigned char data[]; /* chunks[nranks][2], pairs[nranks][nranks], pair data */
};

struct ncclComm {
    uint64_t magic;
    int nranks, rank, device, blocking;
    int state; /* ncclInProgress until the init is complete; then an error or success */
    int aborted, finalized;
    int pending;  /* enqueued, not captured, not yet run */
    int captured; /* some graph may still run work of this communicator */
    gpu_context context;
    gpu_event order, join; /* order: the last call; join: streams of a group */
    gpu_stream last_stream;
    int has_last;
    struct sim_tail { /* what a capture's next call comes after */
        uint64_t capture;
        gpu_node node;
    } tail[SIM_CAPTURES];
    unsigned captures;       /* begun so far */
    pthread_mutex_t running; /* work of two streams never interleaves */
    uint64_t round;
    uint64_t split;
    ncclUniqueId key;
    char name[64];
    struct sim_segment *segment;
    size_t segment_bytes;
    struct sim_user_op {
        int used, on_device;
        ncclDataType_t type;
        _Alignas(8) unsigned char scalar[8];
        const void *pointer; /* device memory, read when the call runs */
    } user_op[SIM_USER_OPS];
};

enum sim_call {
    SIM_ALL_REDUCE,
    SIM_REDUCE,
    SIM_BROADCAST,
    SIM_ALL_GATHER,
    SIM_REDUCE_SCATTER,
    SIM_SEND,
    SIM_RECV,
    SIM_ALL_TO_ALL,
    SIM_GATHER,
    SIM_SCATTER,
};

struct sim_job {
    struct sim_job *next;
    enum sim_call call;
    struct ncclComm *comm;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or the peer of a send or receive */
    gpu_stream stream;
    size_t done; /* bytes, of a send or receive that runs */
};

/* nccl_reduce.c. 0 bytes: unknown type. */
size_t sim_type_bytes(ncclDataType_t type);
/* into = into op from, elementwise; type is one of IPS_TYPES, op sum, prod, max or min.
 */
void sim_reduce(void *into, const void *from, size_t count, ncclDataType_t type, int op);
/* Floating types: data *= 1/nranks, rounded to the type. Integers: data /= nranks. */
void sim_scale_average(void *data, size_t count, ncclDataType_t type, int nranks);
void sim_scale(void *data, size_t count, ncclDataType_t type, const void *scalar);
int sim_is_float(ncclDataType_t type);

/* nccl_run.c: runs on the stream's thread. Sends and receives of one group form one list.
 */
void sim_run_collective(struct sim_job *job);
void sim_run_transfers(struct sim_job *jobs);
/* Waits between polls; not 0 when the communicator is aborted or has failed, or
 * `since_ns` is too long ago, which is reported once and fails it. */
int sim_nccl_pause(struct ncclComm *comm, uint64_t since_ns, unsigned polls,
                   const char *what);
uint64_t sim_nccl_now_ns(void);

/* nccl_comm.c */
int sim_comm_valid(const struct ncclComm *comm);
/* As ncclCommEnsureReady: valid and not in progress. */
ncclResult_t sim_comm_ready(const struct ncclComm *comm);
/* On the caller's device, in progress. NULL on a failure. */
struct ncclComm *sim_comm_create(int blocking);
void sim_comm_free(struct ncclComm *comm);
int sim_config_blocking(const ncclConfig_t *config, int otherwise);

/* nccl_group.c: both run at once outside a group. */
struct sim_init;
ncclResult_t sim_group_add_job(const struct sim_job *job);
ncclResult_t sim_group_add_init(struct sim_init *init);
ncclResult_t sim_group_fail(ncclResult_t result); /* an argument error inside a group */

/* nccl_init.c: brings all of them up together. ncclInProgress: a thread goes on with it.
 */
struct sim_init {
    struct sim_init *next;
    struct ncclComm *comm, **ret_comm;
    struct ncclComm *parent; /* split or shrunk */
    int color, split_key, blocking;
    uint64_t excluded; /* shrunk: ranks of the parent that don't take part */
    int state;
};
ncclResult_t sim_inits_run(struct sim_init *inits);

/* nccl_launch.c: all jobs of one communicator in one group. */
ncclResult_t sim_launch(struct ncclComm *comm, struct sim_job *jobs);

#endif
