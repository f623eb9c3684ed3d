/* SPDX-License-Identifier: Apache-2.0 */
/* The rest of NCCL's API: collectives, user operations, registration and errors. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/simgpu/cuda_api.h"
#include "tools/simgpu/nccl_sim.h"

#define COUNTED_MAX 64

SIM_NCCL(ncclResult_t, ncclGetVersion, (int *version));
SIM_NCCL(const char *, ncclGetErrorString, (ncclResult_t result));
SIM_NCCL(const char *, ncclGetLastError, (ncclComm_t comm));
SIM_NCCL(ncclResult_t, ncclRedOpCreatePreMulSum,
         (ncclRedOp_t * op, void *scalar, ncclDataType_t type, int residence,
          ncclComm_t comm));
SIM_NCCL(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));
SIM_NCCL(ncclResult_t, ncclAllReduce,
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclReduce,
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
          int root, ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclBcast,
         (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclBroadcast,
         (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclAllGather,
         (const void *send, void *recv, size_t count, ncclDataType_t type,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclReduceScatter,
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclAlltoAll,
         (const void *send, void *recv, size_t count, ncclDataType_t type,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclGather,
         (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclScatter,
         (const void *send, void *recv, size_t count, ncclDataType_t type, int root,
          ncclComm_t comm, gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclSend,
         (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclRecv,
         (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
          gpu_stream stream));
SIM_NCCL(ncclResult_t, ncclCommRegister,
         (ncclComm_t comm, void *buffer, size_t bytes, void **handle));
SIM_NCCL(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void *handle));
SIM_NCCL(ncclResult_t, ncclMemAlloc, (void **pointer, size_t bytes));
SIM_NCCL(ncclResult_t, ncclMemFree, (void *pointer));

/* Not NCCL: how often this process has called the function, by its plain name. */
SIM_API unsigned long simnccl_calls(const char *function);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *name;
    unsigned long calls;
} counted[COUNTED_MAX];
static __thread char last_error[128];

static void count(const char *name)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < COUNTED_MAX; i++) {
        if (!counted[i].name)
            counted[i].name = name;
        if (strcmp(counted[i].name, name) == 0) {
            counted[i].calls++;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

unsigned long simnccl_calls(const char *function)
{
    unsigned long calls = 0;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < COUNTED_MAX && counted[i].name; i++)
        if (strcmp(counted[i].name, function) == 0)
            calls = counted[i].calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

int sim_nccl_enter(const char *name, const char *format, ...)
{
    char text[256];
    va_list arguments;
    count(name);
    if (sim_logging("SIMNCCL")) {
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        sim_log("%s %s", name, text);
    }
    int error = sim_fault("SIMNCCL", name);
    if (error)
        sim_nccl_error((ncclResult_t)error, "asked for by SIMNCCL_FAIL");
    return error;
}

ncclResult_t sim_nccl_error(ncclResult_t result, const char *text)
{
    snprintf(last_error, sizeof last_error, "%s", text);
    return result;
}

ncclResult_t pncclGetVersion(int *version)
{
    SIM_NCCL_ENTER(" ");
    if (!version)
        return sim_nccl_error(ncclInvalidArgument, "version is NULL");
    *version = SIM_NCCL_VERSION;
    return ncclSuccess;
}

const char *pncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        "no error",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "internal error - please report this issue to the NCCL developers",
        "invalid argument (run with NCCL_DEBUG=WARN for details)",
        "invalid usage (run with NCCL_DEBUG=WARN for details)",
        "remote process exited or there was a network error",
        "NCCL operation in progress",
    };
    return (unsigned)result < sizeof texts / sizeof texts[0] ? texts[result]
                                                             : "unknown result code";
}

const char *pncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last_error;
}

static int known_op(const struct ncclComm *comm, ncclRedOp_t op, ncclDataType_t type)
{
    if (op >= IPS_SUM && op <= IPS_AVG)
        return 1;
    int index = (op & 0xff) - 5;
    return op > IPS_AVG && index >= 0 && index < SIM_USER_OPS &&
           comm->user_op[index].used && comm->user_op[index].type == type;
}

/* Checks the arguments as NCCL does, and hands the call on. */
static ncclResult_t submit(const struct sim_job *job)
{
    int reduces = job->call == SIM_ALL_REDUCE || job->call == SIM_REDUCE ||
                  job->call == SIM_REDUCE_SCATTER;
    ncclResult_t result = sim_comm_ready(job->comm);
    if (result)
        return sim_group_fail(result);
    if (!sim_type_bytes(job->type) || job->root < 0 || job->root >= job->comm->nranks)
        return sim_group_fail(ncclInvalidArgument);
    if (reduces && (job->type >= IPS_TYPES || !known_op(job->comm, job->op, job->type)))
        return sim_group_fail(ncclInvalidArgument);
    if (!job->count)
        return ncclSuccess;
    int at_root = job->comm->rank == job->root;
    int from_root = job->call == SIM_BROADCAST || job->call == SIM_SCATTER;
    int to_root = job->call == SIM_REDUCE || job->call == SIM_GATHER;
    int sends = job->call != SIM_RECV && (!from_root || at_root);
    int receives = job->call != SIM_SEND && (!to_root || at_root);
    if ((sends && !job->send) || (receives && !job->recv))
        return sim_group_fail(ncclInvalidArgument);
    return sim_group_add_job(job);
}

#define CALL_FORMAT "count=%zu type=%d op=%d root=%d comm=%p stream=%p"
#define ENTER_CALL(op, root) \
    SIM_NCCL_ENTER(CALL_FORMAT, count, type, (op), (root), (void *)comm, (void *)stream)

ncclResult_t pncclAllReduce(const void *send, void *recv, size_t count,
                            ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                            gpu_stream stream)
{
    ENTER_CALL(op, 0);
    return submit(&(struct sim_job){.call = SIM_ALL_REDUCE,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .op = op,
                                    .stream = stream});
}

ncclResult_t pncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                         ncclRedOp_t op, int root, ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(op, root);
    return submit(&(struct sim_job){.call = SIM_REDUCE,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .op = op,
                                    .root = root,
                                    .stream = stream});
}

/* Calls ncclBroadcast by its public name, as the real one does: whoever interposes it is
 * entered again from inside NCCL. */
ncclResult_t pncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, root);
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t pncclBroadcast(const void *send, void *recv, size_t count,
                            ncclDataType_t type, int root, ncclComm_t comm,
                            gpu_stream stream)
{
    ENTER_CALL(0, root);
    return submit(&(struct sim_job){.call = SIM_BROADCAST,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .root = root,
                                    .stream = stream});
}

ncclResult_t pncclAllGather(const void *send, void *recv, size_t count,
                            ncclDataType_t type, ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, 0);
    return submit(&(struct sim_job){.call = SIM_ALL_GATHER,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .stream = stream});
}

ncclResult_t pncclReduceScatter(const void *send, void *recv, size_t count,
                                ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                gpu_stream stream)
{
    ENTER_CALL(op, 0);
    return submit(&(struct sim_job){.call = SIM_REDUCE_SCATTER,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .op = op,
                                    .stream = stream});
}

ncclResult_t pncclAlltoAll(const void *send, void *recv, size_t count,
                           ncclDataType_t type, ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, 0);
    return submit(&(struct sim_job){.call = SIM_ALL_TO_ALL,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .stream = stream});
}

ncclResult_t pncclGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, root);
    return submit(&(struct sim_job){.call = SIM_GATHER,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .root = root,
                                    .stream = stream});
}

ncclResult_t pncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                          int root, ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, root);
    return submit(&(struct sim_job){.call = SIM_SCATTER,
                                    .comm = comm,
                                    .send = send,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .root = root,
                                    .stream = stream});
}

ncclResult_t pncclSend(const void *send, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, peer);
    return submit(&(struct sim_job){.call = SIM_SEND,
                                    .comm = comm,
                                    .send = send,
                                    .count = count,
                                    .type = type,
                                    .root = peer,
                                    .stream = stream});
}

ncclResult_t pncclRecv(void *recv, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, gpu_stream stream)
{
    ENTER_CALL(0, peer);
    return submit(&(struct sim_job){.call = SIM_RECV,
                                    .comm = comm,
                                    .recv = recv,
                                    .count = count,
                                    .type = type,
                                    .root = peer,
                                    .stream = stream});
}

/* The number differs between ranks, as NCCL's does; its low byte is what counts. */
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t type,
                                       int residence, ncclComm_t comm)
{
    SIM_NCCL_ENTER("type=%d comm=%p", type, (void *)comm);
    ncclResult_t result = sim_comm_ready(comm);
    if (result)
        return result;
    int index = 0;
    while (index < SIM_USER_OPS && comm->user_op[index].used)
        index++;
    if (!op || !scalar || type < 0 || type >= IPS_TYPES || index == SIM_USER_OPS)
        return sim_nccl_error(ncclInvalidArgument, "bad operation");
    struct sim_user_op *made = &comm->user_op[index];
    *made = (struct sim_user_op){
        .used = 1, .on_device = residence == 0, .type = type, .pointer = scalar};
    if (!made->on_device)
        memcpy(made->scalar, scalar, sim_type_bytes(type));
    *op = ((comm->rank + 1) * 37 & 0xffff) << 8 | (index + 5);
    return ncclSuccess;
}

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    SIM_NCCL_ENTER("op=%d comm=%p", op, (void *)comm);
    ncclResult_t result = sim_comm_ready(comm);
    if (result)
        return result;
    int index = (op & 0xff) - 5;
    if (op <= IPS_AVG || index < 0 || index >= SIM_USER_OPS || !comm->user_op[index].used)
        return sim_nccl_error(ncclInvalidArgument, "bad operation");
    comm->user_op[index].used = 0;
    return ncclSuccess;
}

ncclResult_t pncclCommRegister(ncclComm_t comm, void *buffer, size_t bytes, void **handle)
{
    SIM_NCCL_ENTER("comm=%p bytes=%zu", (void *)comm, bytes);
    if (!sim_comm_valid(comm) || !handle)
        return sim_nccl_error(ncclInvalidArgument, "comm argument is invalid");
    *handle = buffer;
    return ncclSuccess;
}

ncclResult_t pncclCommDeregister(ncclComm_t comm, void *handle)
{
    SIM_NCCL_ENTER("comm=%p handle=%p", (void *)comm, handle);
    return sim_comm_valid(comm) ? ncclSuccess
                                : sim_nccl_error(ncclInvalidArgument, "comm is invalid");
}

ncclResult_t pncclMemAlloc(void **pointer, size_t bytes)
{
    gpu_ptr address;
    SIM_NCCL_ENTER("bytes=%zu", bytes);
    simgpu_quiet(1);
    int error = pointer ? cuMemAlloc_v2(&address, bytes) : CUDA_ERROR_INVALID_VALUE;
    simgpu_quiet(-1);
    if (error)
        return sim_nccl_error(ncclUnhandledCudaError, "no memory");
    *pointer = (void *)(uintptr_t)address;
    return ncclSuccess;
}

ncclResult_t pncclMemFree(void *pointer)
{
    SIM_NCCL_ENTER("pointer=%p", pointer);
    simgpu_quiet(1);
    int error = cuMemFree_v2((gpu_ptr)(uintptr_t)pointer);
    simgpu_quiet(-1);
    return error ? sim_nccl_error(ncclUnhandledCudaError, "can't free") : ncclSuccess;
}
