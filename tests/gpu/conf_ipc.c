/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: memory shared with another process, which is this program run again. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/conformance.h"

#define BYTES ((size_t)2 << 20)

static void to_hex(char *text, const struct gpu_ipc_handle *handle)
{
    for (size_t i = 0; i < sizeof handle->reserved; i++)
        sprintf(text + 2 * i, "%02x", handle->reserved[i]);
}

static int from_hex(struct gpu_ipc_handle *handle, const char *text)
{
    for (size_t i = 0; i < sizeof handle->reserved; i++) {
        unsigned value;
        if (sscanf(text + 2 * i, "%2x", &value) != 1)
            return -1;
        handle->reserved[i] = (unsigned char)value;
    }
    return 0;
}

/* The child's exit status names the first step that went wrong. */
static int use(const struct gpu_ipc_handle *handle)
{
    gpu_ptr one, two;
    if (gpu.cuIpcOpenMemHandle(&one, *handle, GPU_IPC_LAZY_PEER_ACCESS))
        return 10;
    if (!all_are(one, 4096, 0x11))
        return 11;
    if (gpu.cuIpcOpenMemHandle(&two, *handle, GPU_IPC_LAZY_PEER_ACCESS))
        return 12;
    if (one != two)
        return 13;
    if (gpu.cuIpcCloseMemHandle(two))
        return 14;
    if (more.cuMemsetD8(one + BYTES / 2, 0x22, BYTES / 2) || more.cuCtxSynchronize())
        return 15; /* still open once */
    return gpu.cuIpcCloseMemHandle(one) ? 16 : 0;
}

int ipc_child(int count, char **arguments)
{
    struct gpu_ipc_handle handle;
    gpu_ptr address;
    if (count != 2 || from_hex(&handle, arguments[1]))
        return 2;
    OK(gpu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(more.cuCtxSetCurrent(context));
    if (strcmp(arguments[0], "refused") == 0)
        return gpu.cuIpcOpenMemHandle(&address, handle, GPU_IPC_LAZY_PEER_ACCESS) ? 0
                                                                                  : 20;
    return use(&handle);
}

static int child(const char *what, const struct gpu_ipc_handle *handle)
{
    char text[2 * sizeof handle->reserved + 1];
    int status = -1;
    to_hex(text, handle);
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, what, text, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void test_ipc(void)
{
    struct gpu_ipc_handle handle, other;
    gpu_ptr opened, address = alloc_filled(BYTES, 0x11);
    OK(gpu.cuIpcGetMemHandle(&handle, address));
    OK(gpu.cuIpcGetMemHandle(&other, address));
    tap(memcmp(&handle, &other, sizeof handle) == 0,
        "a handle of the same memory is alike");
    tap_is(gpu.cuIpcOpenMemHandle(&opened, handle, GPU_IPC_LAZY_PEER_ACCESS),
           INVALID_CONTEXT, "the owner can't open its own handle");
    tap_is(child("use", &handle), 0,
           "another process reads and writes it; opening it twice gives one address");
    tap(all_are(address, BYTES / 2, 0x11) &&
            all_are(address + BYTES / 2, BYTES / 2, 0x22),
        "the owner sees what was written");
    memset(&other, 0, sizeof other);
    tap_is(child("refused", &other), 0, "a handle of nothing is refused");
    OK(gpu.cuMemFree(address));
    if (simulated) /* a GPU's driver may keep it a while */
        tap_is(child("refused", &handle), 0, "and one of freed memory");
}
