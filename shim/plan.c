/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the plan: finds the file of `ipcshim tune`, believes it if it is this user's and
 * this machine's, and leaves the rest to policy/. A file that is of no use is told once
 * per process, and never keeps the engine from working. */
#include "shim/plan.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/gpu.h"
#include "core/log.h"
#include "shim/settings.h"
#include "shim/tune_file.h"

_Static_assert(sizeof(struct ips_policy_plan) <= IPS_PLAN_BYTES, "a plan travels whole");

/* One line per process: a program may make hundreds of communicators. */
static void ignore(enum ips_log_level level, const char *path, const char *reason)
{
    static int told;
    if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED))
        ips_log(level,
                "the tuned tables in %s are ignored: %s; `ipcshim tune` makes new ones",
                path, reason);
}

/* What this process sees of the machine; texts[i] holds the GPUs' texts. */
static void describe(struct ips_tuned_machine *machine,
                     char texts[IPS_TUNED_GPUS][IPS_TUNED_GPU_BYTES])
{
    const struct ips_gpu_api *gpu = ips_gpu();
    int count = 0;
    *machine =
        (struct ips_tuned_machine){.library = IPCSHIM_VERSION, .wire = IPS_WIRE_VERSION};
    if (!gpu || gpu->cuDriverGetVersion(&machine->driver) ||
        gpu->cuDeviceGetCount(&count))
        return;
    for (int i = 0; i < count && i < IPS_TUNED_GPUS; i++) {
        gpu_device device;
        struct gpu_uuid uuid;
        char bus_id[32];
        if (gpu->cuDeviceGet(&device, i) || gpu->cuDeviceGetUuid(&uuid, device) ||
            gpu->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device))
            continue;
        ips_tuned_gpu_text(bus_id, uuid.bytes, texts[machine->count]);
        machine->gpu[machine->count] = texts[machine->count];
        machine->count++;
    }
}

/* What was measured here for such a communicator, to be freed; NULL when nothing was. */
static struct ips_tuned *find_tuned(unsigned ranks, enum ips_link link)
{
    const char *named = ips_settings()->tune_file;
    char path[PATH_MAX], reason[IPS_TUNED_REASON_BYTES];
    char gpus[IPS_TUNED_GPUS][IPS_TUNED_GPU_BYTES];
    struct ips_tuned_machine machine;
    enum ips_tuned_verdict verdict;
    struct ips_tuned *tuned;
    if (ips_settings_tune_file(named, path, sizeof path) ||
        !(tuned = malloc(sizeof *tuned)))
        return NULL;
    describe(&machine, gpus);
    if (!ips_tune_file_read(path, &machine, ranks, link, tuned, &verdict, reason))
        return tuned;
    free(tuned);
    if (verdict == IPS_TUNED_ABSENT)
        ips_log(IPS_LOG_INFO, "%s: %s", path, reason);
    else if (verdict != IPS_TUNED_NO_FILE || named) /* nobody has tuned: the usual case */
        ignore(verdict == IPS_TUNED_FOREIGN && !named ? IPS_LOG_INFO : IPS_LOG_WARN, path,
               reason);
    return NULL;
}

static unsigned most_channels(enum ips_link link)
{
    return link == IPS_LINK_HOST ? IPS_HOST_CHANNELS : IPS_MAX_CHANNELS;
}

static size_t make(const void *context, int nranks, enum ips_link link,
                   const struct ips_lineup *lineup, void *ret_plan)
{
    struct ips_policy_plan plan;
    const int saved = errno;
    struct ips_tuned *tuned = find_tuned((unsigned)nranks, link);
    const struct ips_policy_place place = {.ranks = (unsigned)nranks,
                                           .link = link,
                                           .most_channels = most_channels(link),
                                           .group = lineup->group,
                                           .uplink = lineup->uplink / 100.0};
    ips_policy_plan_make(context, &place, tuned, &plan);
    free(tuned);
    memcpy(ret_plan, &plan, sizeof plan);
    errno = saved;
    return sizeof plan;
}

static int is_sound(const void *context, int nranks, enum ips_link link, const void *plan,
                    size_t plan_bytes)
{
    (void)context;
    return ips_policy_plan_valid(plan, plan_bytes, (unsigned)nranks,
                                 most_channels(link)) &&
           ((const struct ips_policy_plan *)plan)->link == link;
}

struct ips_planner ips_plan_planner(const struct ips_policy_settings *settings)
{
    return (struct ips_planner){make, is_sound, settings};
}

int ips_plan_take(const struct ips_agreed *agreed, struct ips_policy_plan *ret)
{
    memcpy(ret, agreed->plan, sizeof *ret);
    return agreed->plan_bytes == sizeof *ret && ips_policy_plan_takes_some(ret);
}
