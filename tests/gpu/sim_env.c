/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the faults that tests can ask the stand-in for through its environment, each in
 * a process of its own, since the environment is read once. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/tap.h"
#include "tools/simgpu/cuda_api.h"

TAP_DEFINE;

int nvmlInit_v2(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *device);
int nvmlDeviceGetP2PStatus(nvml_device a, nvml_device b, int index, int *status);

#define BYTES 8192

static void start(int device)
{
    gpu_context context;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, device);
    cuCtxSetCurrent(context);
}

static int fails_nth(void)
{
    gpu_ptr a;
    setenv("SIMGPU_FAIL", "cuMemAlloc_v2:2:2,cuEventCreate:0:46", 1);
    start(0);
    return cuMemAlloc_v2(&a, 64) == 0 && cuMemAlloc_v2(&a, 64) == 2 &&
           cuMemAlloc_v2(&a, 64) == 0 && cuEventCreate((gpu_event *)&a, 0) == 46 &&
           cuEventCreate((gpu_event *)&a, 0) == 46;
}

static int limits_memory(void)
{
    gpu_ptr a, b;
    setenv("SIMGPU_MEM_BYTES", "100000", 1);
    start(0);
    return cuMemAlloc_v2(&a, 60000) == 0 && cuMemAlloc_v2(&b, 60000) == 2 &&
           cuMemFree_v2(a) == 0 && cuMemAlloc_v2(&b, 60000) == 0;
}

static int logs_calls(void)
{
    char path[] = "/tmp/simgpu-log-XXXXXX", text[200] = "";
    int fd = mkstemp(path), version;
    setenv("SIMGPU_LOG", path, 1);
    cuDriverGetVersion(&version);
    int good =
        read(fd, text, sizeof text - 1) > 0 && strstr(text, " cuDriverGetVersion\n");
    unlink(path);
    return good;
}

static int devices(void)
{
    int count, version, can = 1;
    setenv("SIMGPU_DEVICES", "3", 1);
    setenv("SIMGPU_DRIVER_VERSION", "12040", 1);
    setenv("SIMGPU_NO_PEER", "1", 1);
    start(0);
    return cuDeviceGetCount(&count) == 0 && count == 3 &&
           cuDriverGetVersion(&version) == 0 && version == 12040 &&
           cuDeviceCanAccessPeer(&can, 0, 1) == 0 && can == 0;
}

static int p2p(int index)
{
    char text[16];
    nvml_device device[2];
    int status = -1;
    start(0);
    for (int i = 0; i < 2; i++) {
        cuDeviceGetPCIBusId(text, sizeof text, i);
        if (nvmlInit_v2() || nvmlDeviceGetHandleByPciBusId_v2(text, &device[i]))
            return -1;
    }
    nvmlDeviceGetP2PStatus(device[0], device[1], index, &status);
    return status;
}

static int nvml_default(void)
{
    return p2p(0) == 0 && p2p(1) == 0 && p2p(2) == 5;
}

static int nvml_asked(void)
{
    setenv("SIMGPU_NVLINK", "1", 1);
    setenv("SIMGPU_NVML_P2P", "3", 1);
    return p2p(0) == 3 && p2p(1) == 3 && p2p(2) == 0;
}

/* The child, on device 0, writes 1 into memory of device `owner`. What the owner then
 * sees: 1; what the writer saw: 2. */
static int link_writes(const char *rule, int owner)
{
    struct gpu_ipc_handle handle;
    int to[2], back[2], seen = 0;
    unsigned char value = 0;
    gpu_ptr a;
    if (pipe(to) || pipe(back))
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        setenv("SIMGPU_LINK", rule, 1);
        start(0);
        if (read(to[0], &handle, sizeof handle) != sizeof handle ||
            cuIpcOpenMemHandle_v2(&a, handle, 1) || cuMemsetD8_v2(a, 1, BYTES) ||
            cuMemcpyDtoH_v2(&value, a, 1))
            value = 99;
        _exit(write(back[1], &value, 1) != 1);
    }
    start(owner);
    if (cuMemAlloc_v2(&a, BYTES) || cuMemsetD8_v2(a, 0, BYTES) ||
        cuIpcGetMemHandle(&handle, a) || write(to[1], &handle, sizeof handle) < 0 ||
        read(back[0], &value, 1) != 1 || value == 99)
        return -1;
    waitpid(pid, NULL, 0);
    seen = value == 1 ? 2 : 0;
    cuMemcpyDtoH_v2(&value, a, 1);
    return seen | (value == 1);
}

static int link_sound(void)
{
    return link_writes("", 1) == 3;
}

static int link_drop(void)
{
    return (link_writes("drop", 1) & 1) == 0;
}

static int link_mirror(void)
{
    return link_writes("mirror", 1) == 2;
}

static int link_same_device(void)
{
    return link_writes("drop", 0) == 3;
}

static int link_pair(void)
{
    return (link_writes("drop:0>2", 2) & 1) == 0;
}

static int link_other_pair(void)
{
    return link_writes("drop:0>2", 1) == 3;
}

/* What comes of a copy that device 0 makes of its memory into device 1's by peer access, or
 * back: how many bytes differ at once, and a second later. */
struct copied {
    int now, later;
};

static struct copied copies(const char *rule, int back)
{
    static unsigned char sent[BYTES], got[BYTES];
    struct copied ret = {-1, -1};
    gpu_ptr memory[2];
    setenv("SIMGPU_LINK", rule, 1);
    for (int i = 1; i >= 0; i--) { /* device 0 works */
        start(i);
        if (cuMemAlloc_v2(&memory[i], BYTES))
            return ret;
    }
    memset(sent, 0x5a, BYTES);
    if (cuMemcpyHtoD_v2(memory[back], sent, BYTES) ||
        cuMemcpyDtoD_v2(memory[!back], memory[back], BYTES))
        return ret;
    start(!back); /* the owner looks */
    for (int turn = 0; turn < 2; turn++, sleep(1)) {
        int wrong = 0;
        if (cuMemcpyDtoH_v2(got, memory[!back], BYTES))
            return ret;
        for (int i = 0; i < BYTES; i++)
            wrong += got[i] != sent[i];
        *(turn ? &ret.later : &ret.now) = wrong;
    }
    return ret;
}

static int link_corrupt(void)
{
    const struct copied seen = copies("corrupt:0>1", 0);
    return seen.now == BYTES / 4096 && seen.later == seen.now;
}

static int link_delay(void)
{
    const struct copied seen = copies("delay", 0);
    return seen.now == BYTES && seen.later == 0;
}

static int link_blind(void)
{
    return copies("blind:0>1", 1).now == BYTES;
}

static int link_rules(void)
{
    const struct copied seen = copies("corrupt:1>0,drop:0>1,delay", 0);
    return seen.now == BYTES && seen.later == BYTES;
}

static int forked(void)
{
    int status = -1;
    gpu_ptr a;
    start(0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(cuMemAlloc_v2(&a, 64) != CUDA_ERROR_NOT_INITIALIZED);
    waitpid(pid, &status, 0);
    return status == 0 && cuMemAlloc_v2(&a, 64) == 0;
}

static void alone(int (*fn)(void), const char *what)
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0)
        _exit(!fn());
    waitpid(pid, &status, 0);
    tap(status == 0, "%s", what);
}

int main(void)
{
    alone(fails_nth, "SIMGPU_FAIL fails the nth call, and every call");
    alone(limits_memory, "SIMGPU_MEM_BYTES limits memory");
    alone(logs_calls, "SIMGPU_LOG writes calls down");
    alone(devices, "devices, driver version and peer access as told");
    alone(nvml_default, "NVML: P2P is fine, there is no NVLink");
    alone(nvml_asked, "NVML says what it is told to");
    alone(link_sound, "a sound link");
    alone(link_drop, "a link that drops writes");
    alone(link_mirror, "a link that mirrors writes to the writer");
    alone(link_same_device, "memory of the same device needs no link");
    alone(link_pair, "one directed pair drops");
    alone(link_other_pair, "and the others don't");
    alone(link_corrupt, "a link that corrupts writes");
    alone(link_delay, "a link that delays them");
    alone(link_blind, "a link that answers no read");
    alone(link_rules, "several rules: the first that fits");
    alone(forked, "a forked child can't use the driver");
    return tap_end();
}
