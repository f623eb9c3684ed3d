/* SPDX-License-Identifier: Apache-2.0 */
/* Looks the links of a communicator up in the file of `ipcshim doctor --probe`: in this
 * user's, or else the machine's. A file that is of no use never keeps the engine from
 * working: then the set-up probes. */
#include "shim/measured.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gpu.h"
#include "core/log.h"
#include "policy/tuned.h"
#include "shim/verdict_file.h"

/* One line per process: a program may make hundreds of communicators. */
static void ignore(const char *path, const char *reason)
{
    static int told;
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        ips_log(
            IPS_LOG_INFO,
            "the verdicts on links in %s are ignored: %s; `ipcshim doctor --probe` makes "
            "new ones",
            path, reason);
}

static int find_gpu(const struct ips_verdicts *verdicts, const struct ips_gpu_name *gpu)
{
    char text[IPS_TUNED_GPU_BYTES];
    ips_tuned_gpu_text(gpu->bus_id, gpu->uuid.bytes, text); /* "bus UUID" */
    char *space = strchr(text, ' ');
    *space = 0;
    return ips_verdicts_gpu(verdicts, text, space + 1);
}

static enum ips_recalled judge(const struct ips_verdicts *verdicts,
                               const struct ips_gpu_name *gpus, unsigned count,
                               char *ret_reason)
{
    const struct ips_verdict_row *row = NULL;
    enum ips_recalled all = IPS_RECALLS_SOUND;
    unsigned pairs = 0;
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < count; j++) {
            const int from = find_gpu(verdicts, &gpus[i]),
                      to = find_gpu(verdicts, &gpus[j]);
            if (!memcmp(&gpus[i].uuid, &gpus[j].uuid, sizeof gpus[i].uuid)) {
                if (i != j) /* how ranks get on that share a GPU was not measured */
                    all = IPS_RECALLS_NOTHING;
                continue;
            }
            const enum ips_measured pair =
                from < 0 || to < 0
                    ? IPS_UNMEASURED
                    : ips_verdicts_pair(verdicts, (unsigned)from, (unsigned)to, &row);
            if (pair == IPS_MEASURED_BROKEN) {
                const int used = snprintf(ret_reason, IPS_REASON_BYTES,
                                          "`ipcshim doctor --probe` has found that ");
                ips_verdict_text(verdicts, row, ret_reason + used,
                                 IPS_REASON_BYTES - (size_t)used);
                return IPS_RECALLS_BROKEN;
            }
            if (pair == IPS_UNMEASURED)
                all = IPS_RECALLS_NOTHING;
            pairs++;
        }
    return pairs ? all : IPS_RECALLS_NOTHING;
}

static int find_file(struct ips_verdicts *ret)
{
    const struct ips_gpu_api *gpu = ips_gpu();
    int version = 0;
    return gpu && !gpu->cuDriverGetVersion(&version)
               ? ips_verdict_file_newest(version, ret, ignore)
               : -1;
}

enum ips_recalled ips_measured_recall(const struct ips_gpu_name *gpus, unsigned count,
                                      char *ret_reason)
{
    const int saved = errno;
    enum ips_recalled recalled = IPS_RECALLS_NOTHING;
    struct ips_verdicts *verdicts = malloc(sizeof *verdicts);
    if (verdicts && !find_file(verdicts))
        recalled = judge(verdicts, gpus, count, ret_reason);
    if (recalled == IPS_RECALLS_SOUND)
        ips_log(
            IPS_LOG_INFO,
            "the links are not probed: `ipcshim doctor --probe` found them sound (%s)",
            verdicts->made);
    free(verdicts);
    errno = saved;
    return recalled;
}
