/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/nccl_rank.h"

#include <sys/wait.h>
#include <unistd.h>

TAP_DEFINE;

int bad;

void open_device(struct rank *self, int device)
{
    gpu_context context;
    gpu_ptr in, out;
    size_t bytes = (size_t)self->n * COUNT * 8;
    WANT(cuInit(0) == 0);
    WANT(cuDevicePrimaryCtxRetain(&context, device) == 0);
    WANT(cuCtxSetCurrent(context) == 0);
    WANT(cuStreamCreate(&self->stream, GPU_STREAM_NON_BLOCKING) == 0);
    WANT(cuMemAlloc_v2(&in, bytes) == 0 && cuMemAlloc_v2(&out, bytes) == 0);
    self->in = (float *)(uintptr_t)in;
    self->out = (float *)(uintptr_t)out;
}

void fill(struct rank *self, size_t count, int base)
{
    for (size_t i = 0; i < count; i++)
        self->in[i] = (float)(base + self->rank) * (float)(i % 100);
}

void finish(struct rank *self)
{
    WANT(cuStreamSynchronize(self->stream) == 0);
}

int is(const float *out, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        if (out[i] != factor * (float)(i % 100))
            return 0;
    return 1;
}

static void with_comm(struct rank *self, void (*fn)(struct rank *))
{
    open_device(self, self->rank);
    WANT(ncclCommInitRank(&self->comm, self->n, self->id, self->rank) == 0);
    if (bad)
        return;
    fn(self);
    WANT(ncclCommFinalize(self->comm) == 0);
    WANT(ncclCommDestroy(self->comm) == 0);
}

void in_ranks(int n, void (*fn)(struct rank *), int own_init, const char *what)
{
    struct rank self = {.n = n};
    int failed = ncclGetUniqueId(&self.id) != 0;
    pid_t pid[SIM_RANKS_MAX];
    for (self.rank = 0; self.rank < n; self.rank++) {
        pid[self.rank] = fork();
        if (pid[self.rank] != 0)
            continue;
        if (own_init)
            fn(&self);
        else
            with_comm(&self, fn);
        _exit(bad != 0);
    }
    for (int r = 0; r < n; r++) {
        int status = -1;
        waitpid(pid[r], &status, 0);
        failed |= status != 0;
    }
    tap(!failed, "%s", what);
}
