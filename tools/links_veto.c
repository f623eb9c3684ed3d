/* SPDX-License-Identifier: Apache-2.0 */
/* `ipcshim run` forbids NCCL the use of peer-to-peer where the probe has found a pair
 * broken. Which GPUs a program would see only the driver tells: a child asks it (hidden
 * command), so that who runs the program never has a driver open. */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/gpu.h"
#include "policy/tuned.h"
#include "shim/settings.h"
#include "shim/verdict_file.h"
#include "tools/links.h"
#include "tools/tool.h"

#define BROKEN 10 /* the child's exit status; it has said which */

/* Bits: of the file's GPUs those that this process sees. */
static uint32_t visible(const struct ips_gpu_api *gpu,
                        const struct ips_verdicts *verdicts)
{
    uint32_t seen = 0;
    int count = 0;
    gpu->cuDeviceGetCount(&count);
    for (int i = 0; i < count; i++) {
        char bus_id[32], text[IPS_TUNED_GPU_BYTES];
        struct gpu_uuid uuid;
        gpu_device id;
        if (gpu->cuDeviceGet(&id, i) || gpu->cuDeviceGetUuid(&uuid, id) ||
            gpu->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, id))
            continue;
        ips_tuned_gpu_text(bus_id, uuid.bytes, text); /* "bus UUID" */
        const int at = ips_verdicts_gpu(verdicts, bus_id, strchr(text, ' ') + 1);
        if (at >= 0)
            seen |= 1u << at;
    }
    return seen;
}

/* The first pair of GPUs among these that failed, or NULL. */
static const struct ips_verdict_row *find_broken(const struct ips_verdicts *verdicts,
                                                 uint32_t gpus)
{
    for (unsigned i = 0; i < verdicts->rows; i++) {
        const struct ips_verdict_row *row = &verdicts->row[i];
        if (ips_verdict_broken(row) && row->to != IPS_VERDICTS_HOST &&
            gpus >> row->from & 1 && gpus >> row->to & 1)
            return row;
    }
    return NULL;
}

int cmd_links_veto(int argc, char **argv)
{
    static struct ips_verdicts verdicts;
    char text[160];
    int version = 0;
    (void)argc, (void)argv;
    /* Without the driver first: it takes a second to open. */
    if (ips_verdict_file_newest(0, &verdicts, NULL) || !find_broken(&verdicts, UINT32_MAX))
        return 0;
    const struct ips_gpu_api *gpu = ips_gpu();
    if (!gpu || gpu->cuDriverGetVersion(&version) ||
        ips_verdict_file_newest(version, &verdicts, NULL))
        return 0;
    const struct ips_verdict_row *row = find_broken(&verdicts, visible(gpu, &verdicts));
    if (!row)
        return 0;
    ips_verdict_text(&verdicts, row, text, sizeof text);
    fprintf(stderr,
            "ipcshim: run: NCCL_P2P_DISABLE=1 is set for NCCL, since `ipcshim doctor "
            "--probe` "
            "found (%s) that %s; NCCL_P2P_DISABLE=0 prevents that\n",
            verdicts.made, text);
    return BROKEN;
}

void links_veto(void)
{
    char *const argv[] = {"/proc/self/exe", "links-veto", NULL};
    int status;
    if (getenv("NCCL_P2P_DISABLE"))
        return;
    fflush(NULL);
    void (*before)(int) = signal(SIGCHLD, SIG_DFL); /* ignored, nothing can be waited for */
    const pid_t pid = fork();
    if (pid == 0) {
        execv(argv[0], argv);
        _exit(0);
    }
    if (pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
        WEXITSTATUS(status) == BROKEN)
        setenv("NCCL_P2P_DISABLE", "1", 1);
    signal(SIGCHLD, before);
}
