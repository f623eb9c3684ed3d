/* SPDX-License-Identifier: Apache-2.0 */
/* Joins streams by plain events, which fork and join a capture as well. An event lives
 * for one join only: the driver keeps it until its waiters have passed. */
#include "core/join.h"

#include <errno.h>
#include <time.h>

#include "core/engine_private.h"
#include "core/log.h"

int ips_engine_join(struct ips_engine *engine, gpu_stream from, gpu_stream to)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    gpu_event event = NULL;
    int pushed = 0;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    int error = IPS_GPU(gpu, cuEventCreate(&event, GPU_EVENT_DISABLE_TIMING));
    if (!error)
        error = IPS_GPU(gpu, cuEventRecord(event, from));
    if (!error)
        error = IPS_GPU(gpu, cuStreamWaitEvent(to, event, 0));
    if (event)
        gpu->cuEventDestroy(event);
    ips_gpu_leave(gpu, pushed);
    return error ? -EIO : 0;
}

int ips_engine_idle(const struct ips_engine *engine)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    int pushed = 0, mode = GPU_CAPTURE_MODE_RELAXED;
    if (ips_engine_error(engine) || ips_gpu_enter(gpu, engine->device->context, &pushed))
        return 1;
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    const int status = gpu->cuEventQuery(engine->order.event);
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    ips_gpu_leave(gpu, pushed);
    return status != GPU_ERROR_NOT_READY;
}

int ips_engine_drain(struct ips_engine *engine)
{
    const struct ips_gpu_api *gpu = engine->device->gpu;
    const struct timespec pause = {0, 100000};
    int pushed = 0, mode = GPU_CAPTURE_MODE_RELAXED, status;
    if (ips_gpu_enter(gpu, engine->device->context, &pushed))
        return -EIO;
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    while ((status = gpu->cuEventQuery(engine->order.event)) == GPU_ERROR_NOT_READY &&
           !ips_engine_error(engine))
        nanosleep(&pause, NULL);
    gpu->cuThreadExchangeStreamCaptureMode(&mode);
    ips_gpu_leave(gpu, pushed);
    int error = ips_engine_error(engine);
    return error ? error : status ? -EIO : 0;
}
