/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/process/worker_parts.h"

#include <stdlib.h>

#include "kernels/types.h"

uint32_t part_value(const struct part *part, unsigned rank, size_t i)
{
    return (rank + 1) * 1000003u + (uint32_t)i * 17 + part->salt * 7919;
}

int part_make(struct worker *worker, struct part *part, size_t count, unsigned number)
{
    return part_make_salted(worker, part, count, worker->line * 1009 + number);
}

int part_make_salted(struct worker *worker, struct part *part, size_t count,
                     unsigned salt)
{
    size_t room = count * worker->nranks * 4;
    uint32_t *host = malloc(room);
    *part = (struct part){.count = count, .salt = salt};
    if (!host || device_alloc(&worker->device, room, &part->in) ||
        device_alloc(&worker->device, room, &part->out))
        return -1;
    for (size_t i = 0; i < count * worker->nranks; i++)
        host[i] = part_value(part, worker->rank, i);
    int error = device_upload(&worker->device, part->in, host, room, worker->stream[0]) ||
                device_fill(&worker->device, part->out, (unsigned char)PART_POISON, room,
                            worker->stream[0]);
    free(host);
    return error;
}

void part_free(struct worker *worker, struct part *part)
{
    device_free(&worker->device, part->in);
    device_free(&worker->device, part->out);
}

int part_sum(struct worker *worker, const struct part *part, nccl_comm comm,
             gpu_stream stream)
{
    return worker->nccl.AllReduce((const void *)(uintptr_t)part->in,
                                  (void *)(uintptr_t)part->out, part->count, IPS_INT32,
                                  IPS_SUM, comm, stream);
}

int part_download(struct worker *worker, const struct part *part, uint32_t *host)
{
    return device_download(&worker->device, host, part->out,
                           part->count * worker->nranks * 4, worker->stream[0]);
}

void part_check(struct worker *worker, const struct part *part, unsigned members,
                const char *what)
{
    uint32_t *host = malloc(part->count * worker->nranks * 4);
    size_t wrong = 0;
    if (!worker_check(worker, host && !part_download(worker, part, host), "no output"))
        return;
    for (size_t i = 0; i < part->count * worker->nranks; i++) {
        uint32_t wanted = i < part->count ? 0 : PART_POISON;
        for (unsigned r = 0; i < part->count && r < worker->nranks; r++)
            wanted += members >> r & 1 ? part_value(part, r, i) : 0;
        wrong += host[i] != wanted;
    }
    worker_check(worker, !wrong, "%s: %zu of %zu wrong", what, wrong, part->count);
    free(host);
}

void part_check_untouched(struct worker *worker, const struct part *part,
                          const char *what)
{
    uint32_t *host = malloc(part->count * worker->nranks * 4);
    size_t wrong = 0;
    if (!worker_check(worker, host && !part_download(worker, part, host), "no output"))
        return;
    for (size_t i = 0; i < part->count * worker->nranks; i++)
        wrong += host[i] != PART_POISON;
    worker_check(worker, !wrong, "%s: %zu elements were written", what, wrong);
    free(host);
}

int worker_wait(struct worker *worker)
{
    for (unsigned i = 0; i < WORKER_STREAMS; i++)
        if (device_wait(&worker->device, worker->stream[i], worker->timeout_s))
            return -1;
    return 0;
}
