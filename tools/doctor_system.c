/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what is around the GPUs: virtualisation, driver, shared memory, limits, and
 * the environment that a program would inherit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check.h"
#include "tools/doctor.h"
#include "tools/place.h"

#define MB ((int64_t)1 << 20)
#define DRIVER_LEAST 580      /* with CUDA 13, see README */
#define SHM_LEAST (1024 * MB) /* what NVIDIA's container guides give NCCL */
#define SHM_RANK_BYTES                                               \
    (4 * MB) /* of a rank's mailboxes, where they are in host memory \
              */
#define MEMLOCK_LEAST (64 * MB)

void doctor_check_virtual(struct doctor_report *report, const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    if (host->hypervisor < 0)
        doctor_not_seen(report, "whether this is a virtual machine");
    else if (host->hypervisor)
        doctor_find(report, DOCTOR_NOTE, "virtual-machine",
                    *host->product ? host->product : "hypervisor",
                    "see that the host passes the GPUs through with ACS and IOMMU set "
                    "for peer-to-peer, and look there with this command",
                    "a virtual machine: links and bridges may be its maker's fiction, "
                    "and peer-to-peer that is reported is not proven");
}

void doctor_check_driver(struct doctor_report *report, const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    if (!doctor_has_nvidia(&view->topology))
        return;
    if (!host->proc)
        doctor_not_seen(report, "the NVIDIA driver");
    else if (!*host->driver)
        doctor_find(report, DOCTOR_WARNING, "driver-missing", "nvidia",
                    "install and load the driver; start a container with the NVIDIA "
                    "runtime (docker run --gpus all)",
                    "there is no /proc/driver/nvidia/version: the driver is not loaded");
    else if (atoi(host->driver) < DRIVER_LEAST)
        doctor_find(report, DOCTOR_NOTE, "driver-old", host->driver,
                    "update the driver, or build with the CUDA toolkit that came with it",
                    "a library that was built with CUDA 13 takes driver %d or newer",
                    DRIVER_LEAST);
}

void doctor_check_params(struct doctor_report *report, const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    if (!host->params && doctor_has_nvidia(&view->topology))
        doctor_not_seen(report, "the driver's parameters");
    if (strstr(host->registry, "P2P") || strstr(host->registry, "PeerMapping") ||
        strstr(host->registry, "StaticBar1"))
        doctor_find(report, DOCTOR_NOTE, "p2p-forced", "RegistryDwords",
                    "none, if it is meant; the engine's probe of each link decides",
                    "the driver's own judgement of peer-to-peer is overridden: %s",
                    host->registry);
}

void doctor_check_shm(struct doctor_report *report, const struct doctor_view *view)
{
    const struct doctor_host *host = &view->host;
    unsigned gpus = view->topology.gpus ? view->topology.gpus : 1;
    /* As much again stays free for others. */
    int64_t engine = 2 * SHM_RANK_BYTES * gpus;
    if (host->shm_bytes < 0) {
        doctor_not_seen(report, "the size of /dev/shm");
        return;
    }
    if (host->shm_bytes < SHM_LEAST)
        doctor_find(report, DOCTOR_WARNING, "shm-small", "/dev/shm",
                    "docker run --shm-size=1g or --ipc=host; Kubernetes: an emptyDir "
                    "with medium: Memory; else: mount -o remount,size=1G /dev/shm",
                    "%" PRId64 " MB: NCCL fails or dies with SIGBUS when it is full, and "
                    "the engine over host memory needs %" PRId64 " MB for each "
                    "communicator of %u ranks",
                    host->shm_bytes / MB, engine / MB, gpus);
    if (host->shm_free_bytes >= 0 && host->shm_free_bytes < engine)
        doctor_find(report, DOCTOR_WARNING, "shm-full", "/dev/shm",
                    "remove what programs that ended have left there (ls -l /dev/shm)",
                    "%" PRId64 " of %" PRId64 " MB are free", host->shm_free_bytes / MB,
                    host->shm_bytes / MB);
}

void doctor_check_memlock(struct doctor_report *report, const struct doctor_view *view)
{
    int64_t bytes = view->host.memlock_bytes;
    if (bytes < 0)
        doctor_not_seen(report, "the limit of locked memory");
    else if (bytes < MEMLOCK_LEAST)
        doctor_find(report, DOCTOR_NOTE, "memlock", "RLIMIT_MEMLOCK",
                    "ulimit -l unlimited; docker run --ulimit memlock=-1",
                    "%" PRId64 " KB may be locked: enough for this library, but NCCL "
                    "with a network card needs more",
                    bytes / 1024);
}

static const char *variable(const struct doctor_view *view, const char *name)
{
    size_t length = strlen(name);
    for (char **entry = view->host.environment; entry && *entry; entry++)
        if (!strncmp(*entry, name, length) && (*entry)[length] == '=')
            return *entry + length + 1;
    return NULL;
}

void doctor_check_mps(struct doctor_report *report, const struct doctor_view *view)
{
    const char *folder = variable(view, "CUDA_MPS_PIPE_DIRECTORY");
    if (view->host.mps)
        doctor_find(report, DOCTOR_NOTE, "mps", folder ? folder : "/tmp/nvidia-mps",
                    "none, where ranks are to share a GPU; else: echo quit | "
                    "nvidia-cuda-mps-control",
                    "an MPS server's control pipe is there: a fault in one program can "
                    "end the others on that GPU");
    else if (folder && *folder)
        doctor_find(report, DOCTOR_NOTE, "mps-missing", "CUDA_MPS_PIPE_DIRECTORY",
                    "nvidia-cuda-mps-control -d, or unset the variable",
                    "it names %s, where no MPS server listens: ranks that share a GPU "
                    "take turns of milliseconds",
                    folder);
}

/* Whether anything in it concerns the shim; else its absence is no finding. */
static int names_shim(const struct doctor_view *view)
{
    const char *preload = variable(view, "LD_PRELOAD");
    if (preload && (strstr(preload, "ipcshim") || strstr(preload, "nccl")))
        return 1;
    for (size_t i = 0; check_path_variables[i]; i++)
        if (variable(view, check_path_variables[i]))
            return 1;
    for (char **entry = view->host.environment; entry && *entry; entry++)
        if (!strncmp(*entry, "IPCSHIM_", 8))
            return 1;
    return 0;
}

static void judge_preload(struct doctor_report *report, const struct doctor_view *view)
{
    /* Where another machine has its library is not known here. */
    struct check_report check = {.shim = view->live ? place_shim() : NULL};
    struct check_process *process = check_add_process(&check, 0);
    process->environment = view->host.environment;
    process->root = view->root_path;
    check_preload(&check, process);
    for (size_t i = 0; i < check.nfindings; i++)
        doctor_find(report, check.findings[i].fix ? DOCTOR_WARNING : DOCTOR_NOTE,
                    check.findings[i].id, "environment", check.findings[i].remedy, "%s",
                    check.findings[i].text);
}

void doctor_check_environment(struct doctor_report *report,
                              const struct doctor_view *view)
{
    const char *disable = variable(view, "NCCL_P2P_DISABLE");
    if (!view->host.environment) {
        doctor_not_seen(report, "the environment");
        return;
    }
    if (disable && *disable && strcmp(disable, "0") != 0)
        doctor_find(report, DOCTOR_NOTE, "p2p-disabled", "NCCL_P2P_DISABLE",
                    "unset it, where it is not there for a reason",
                    "peer-to-peer is forbidden: NCCL and the engine go through host "
                    "memory");
    if (names_shim(view))
        judge_preload(report, view);
}
