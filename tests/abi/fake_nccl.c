/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnccl.so.2 with every public name, from the shim's own table. It moves
 * no data: it records who was called with what. Like the real one it calls its own public
 * functions through the PLT. FAKE_OLD leaves out what came after NCCL 2.28. */
#include "tests/abi/fake_nccl.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim/nccl_api.h"

#define EXPORT __attribute__((visibility("default")))
#define IPS_TRACE_NO_TYPE (-1)

struct ncclComm {
    int rank, nranks;
    int background; /* its state is the slow ones' */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *log_text;
static size_t log_used, log_room;
static ncclUniqueId last_id;
static const void *last_config;
static _Thread_local int depth, fail_next;
static ncclComm_t reused[2];
static int keep, child_ranks;
static int slow, slow_state, writers; /* atomic */

EXPORT void fake_note(const char *text)
{
    size_t length = strlen(text);
    pthread_mutex_lock(&lock);
    if (log_used + length + 2 > log_room) {
        log_room = 2 * (log_used + length) + 4096;
        log_text = realloc(log_text, log_room);
    }
    memcpy(log_text + log_used, text, length);
    memcpy(log_text + log_used + length, ";", 2);
    log_used += length + 1;
    pthread_mutex_unlock(&lock);
}

/* A copy for the calling thread, valid until its next call: others may be noting. */
EXPORT const char *fake_log(void)
{
    static _Thread_local char *copy;
    pthread_mutex_lock(&lock);
    free(copy);
    copy = log_used ? strdup(log_text) : NULL;
    pthread_mutex_unlock(&lock);
    return copy ? copy : "";
}

EXPORT void fake_reset(void)
{
    pthread_mutex_lock(&lock);
    log_used = 0;
    pthread_mutex_unlock(&lock);
}

EXPORT const void *fake_last_id(void)
{
    return &last_id;
}

EXPORT const void *fake_last_config(void)
{
    return last_config;
}

EXPORT int fake_depth(void)
{
    return depth;
}

EXPORT void fake_fail_next(int result)
{
    fail_next = result;
}

EXPORT void fake_keep(void)
{
    keep = 1;
}

EXPORT void fake_reuse(void *first, void *second)
{
    reused[0] = first;
    reused[1] = second;
}

EXPORT void fake_slow(void)
{
    slow = 1;
    __atomic_store_n(&slow_state, ncclInProgress, __ATOMIC_SEQ_CST);
}

EXPORT void fake_finish(int result)
{
    __atomic_store_n(&slow_state, result, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&writers, __ATOMIC_SEQ_CST))
        usleep(100);
}

EXPORT void fake_child_ranks(int nranks)
{
    child_ranks = nranks;
}

/* In front of the C library's. */
static int objects_shown; /* atomic */
typedef int visit(struct dl_phdr_info *info, size_t size, void *data);
struct visitor {
    visit *visit;
    void *data;
};

/* A sanitizer's runtime comes here before it can bear its own instrumentation. */
#define EARLY __attribute__((no_sanitize("thread", "address", "undefined")))

EARLY static int show(struct dl_phdr_info *info, size_t size, void *data)
{
    const struct visitor *visitor = data;
    __atomic_fetch_add(&objects_shown, 1, __ATOMIC_RELAXED);
    return visitor->visit(info, size, visitor->data);
}

EARLY EXPORT int dl_iterate_phdr(visit *visit_one, void *data)
{
    int (*real)(visit *, void *) =
        (int (*)(visit *, void *))dlsym(RTLD_NEXT, "dl_iterate_phdr");
    struct visitor visitor = {visit_one, data};
    return real(show, &visitor);
}

EXPORT int fake_objects_shown(void)
{
    return __atomic_load_n(&objects_shown, __ATOMIC_RELAXED);
}

static ncclResult_t state_of(ncclComm_t comm)
{
    return comm && comm->background
               ? (ncclResult_t)__atomic_load_n(&slow_state, __ATOMIC_SEQ_CST)
               : ncclSuccess;
}

static int is_background(const void *config, int standard)
{
    struct head {
        size_t size;
        unsigned magic, version;
        int blocking;
    };
    return !slow ? 0 : config ? ((const struct head *)config)->blocking == 0 : standard;
}

static ncclResult_t noted(const char *name)
{
    ncclResult_t result = (ncclResult_t)fail_next;
    fake_note(name);
    fail_next = 0;
    return result;
}

static ncclResult_t make(ncclComm_t *comm, int nranks, int rank, const char *name,
                         int background)
{
    ncclResult_t result = noted(name);
    if (result != ncclSuccess && result != ncclInProgress)
        return result;
    pthread_mutex_lock(&lock);
    *comm = reused[0];
    reused[0] = reused[1];
    reused[1] = NULL;
    pthread_mutex_unlock(&lock);
    if (!*comm)
        *comm = malloc(sizeof **comm);
    (*comm)->rank = rank;
    (*comm)->nranks = nranks;
    (*comm)->background = background;
    return background ? ncclInProgress : result;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId,
                                     int rank)
{
    pthread_mutex_lock(&lock);
    last_id = commId;
    pthread_mutex_unlock(&lock);
    return make(comm, nranks, rank, "ncclCommInitRank", 0);
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                           ncclUniqueId commId, int rank,
                                           ncclConfig_t *config)
{
    last_id = commId;
    last_config = config;
    return make(comm, nranks, rank, "ncclCommInitRankConfig", is_background(config, 0));
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank,
                                             int nId, ncclUniqueId *commIds,
                                             ncclConfig_t *config)
{
    if (nId > 0)
        last_id = commIds[nId - 1];
    last_config = config;
    return make(newcomm, nranks, myrank, "ncclCommInitRankScalable",
                is_background(config, 0));
}

EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
    ncclUniqueId id;
    ncclResult_t result = (ncclResult_t)fail_next;
    (void)devlist;
    if (ndev <= 0) { /* a failure on the way that is not its own */
        fail_next = 0;
        ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, NULL, NULL);
        return result;
    }
    ncclGetUniqueId(&id); /* through the PLT, as NCCL does */
    for (int i = 0; i < ndev; i++)
        make(&comm[i], ndev, i, "ncclCommInitAll", 0);
    return ncclSuccess;
}

/* A child that its parent's background thread makes: the handle comes when all is done.
 */
struct late {
    ncclComm_t *where, comm;
};

static void *write_late(void *argument)
{
    struct late late = *(struct late *)argument;
    free(argument);
    while (state_of(late.comm) == ncclInProgress)
        usleep(100);
    if (state_of(late.comm) == ncclSuccess)
        __atomic_store_n(late.where, late.comm, __ATOMIC_RELEASE);
    __atomic_fetch_sub(&writers, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key,
                                  ncclComm_t *newcomm, ncclConfig_t *config)
{
    int nranks = child_ranks ? child_ranks : comm->nranks;
    (void)key;
    last_config = config;
    if (newcomm)
        *newcomm = NULL;
    if (color < 0 || !newcomm)
        return noted("ncclCommSplit");
    if (!comm->background)
        return make(newcomm, nranks, comm->rank, "ncclCommSplit",
                    is_background(config, 0));
    struct late *late = malloc(sizeof *late);
    pthread_t thread;
    late->where = newcomm;
    make(&late->comm, nranks, comm->rank, "ncclCommSplit", is_background(config, 1));
    __atomic_fetch_add(&writers, 1, __ATOMIC_SEQ_CST);
    pthread_create(&thread, NULL, write_late, late);
    pthread_detach(thread);
    return ncclInProgress;
}

#ifndef FAKE_OLD
EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *exclude, int count,
                                   ncclComm_t *newcomm, ncclConfig_t *config, int flags)
{
    (void)exclude, (void)config, (void)flags;
    return make(newcomm, comm->nranks - count, comm->rank, "ncclCommShrink", 0);
}

EXPORT ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks,
                                 const ncclUniqueId *uniqueId, int rank,
                                 ncclComm_t *newcomm, ncclConfig_t *config)
{
    (void)comm, (void)uniqueId, (void)config;
    return make(newcomm, nRanks, rank, "ncclCommGrow", 0);
}

EXPORT ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags)
{
    (void)flags;
    if (state_of(comm) == ncclInProgress)
        fake_fail_next(ncclInvalidArgument);
    return noted("ncclCommSuspend");
}

EXPORT ncclResult_t ncclCommResume(ncclComm_t comm)
{
    (void)comm;
    return noted("ncclCommResume");
}

EXPORT ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    (void)comm, (void)revokeFlags;
    return noted("ncclCommRevoke");
}
#endif

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return noted("ncclCommFinalize");
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    ncclCommDeregister(comm, NULL); /* through the PLT */
    if (!keep)
        free(comm);
    return noted("ncclCommDestroy");
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    if (!keep)
        free(comm);
    return noted("ncclCommAbort");
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    *asyncError = state_of(comm);
    return noted("ncclCommGetAsyncError");
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    depth++;
    return noted("ncclGroupStart");
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    depth--;
    return noted("ncclGroupEnd");
}

EXPORT ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    (void)simInfo;
    depth--;
    return noted("ncclGroupSimulateEnd");
}

EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                  ncclDataType_t datatype, ncclRedOp_t op,
                                  ncclComm_t comm, cudaStream_t stream)
{
    (void)sendbuff, (void)recvbuff, (void)count, (void)datatype, (void)op, (void)stream;
    if (!comm || state_of(comm) == ncclInProgress)
        fake_fail_next(ncclInvalidArgument);
    return noted("ncclAllReduce");
}

/* The calls whose answers matter; the rest is generated. */
EXPORT ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size,
                                           ncclWindow_t *win, int winFlags)
{
    (void)comm, (void)buff, (void)size, (void)win, (void)winFlags;
    return noted("ncclCommWindowRegister");
}

EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream)
{
    noted("ncclBcast");
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = 22809;
    return noted("ncclGetVersion");
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId)
{
    static unsigned char next = 1;
    memset(uniqueId, next++, sizeof *uniqueId);
    return noted("ncclGetUniqueId");
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return noted("ncclCommCount");
}

EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = comm->rank + 100;
    return noted("ncclCommCuDevice");
}

EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return noted("ncclCommUserRank");
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    (void)result;
    return "the fake's error string";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "the fake's last error";
}
