/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshimGetInfo: tells programs and people that this library answers NCCL's names, and
 * which NCCL stands behind it. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "kernels/image.h"
#include "kernels/wire.h"
#include "shim/nccl_api.h"
#include "shim/real.h"

const char *ipcshimGetInfo(void);

/* "name: value" lines, in static storage; the search for NCCL is done if it was not yet.
 */
IPS_EXPORT const char *ipcshimGetInfo(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static char text[10 * 1024];
    Dl_info self = {0};
    int version = 0;
    __typeof__(&ncclGetVersion) real = IPS_REAL(ncclGetVersion);
    if (real) {
        ncclResult_t ignored;
        IPS_CALL(ignored, real(&version));
        (void)ignored;
    }
    dladdr(&lock, &self);
    const char *path = ips_real_path(), *how = ips_real_how();
    pthread_mutex_lock(&lock);
    snprintf(text, sizeof text,
             "ipcshim: %s\nlibrary: %s\nwire: %d\ndevice code: %zu bytes\nnccl: %s\n"
             "nccl version: %d\nnccl found by: %s\n",
             IPCSHIM_VERSION, self.dli_fname ? self.dli_fname : "?", IPS_WIRE_VERSION,
             ips_kernel_image_bytes, path ? path : "not found", version, how ? how : "-");
    pthread_mutex_unlock(&lock);
    return text;
}
