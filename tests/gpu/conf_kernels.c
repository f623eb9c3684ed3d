/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the module's kernels, two ranks on two streams of one device. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/image.h"
#include "kernels/wire.h"
#include "tests/gpu/conformance.h"

#define RANKS 2
#define CHANNELS 2
#define COUNT 50001 /* floats, no multiple of anything */

static gpu_module module;
static gpu_ptr slab[RANKS], in[RANKS], out[RANKS];
static struct ips_control *control[RANKS];
static gpu_ptr control_device[RANKS];
static gpu_stream stream[RANKS];

static void rank_create(int rank)
{
    const size_t bytes = IPS_HEAD_BYTES + IPS_MAILBOX_BYTES(CHANNELS);
    struct ips_guard_keys keys;
    void *page;
    unsigned char *key_bytes = (unsigned char *)&keys;
    for (size_t i = 0; i < sizeof keys; i++)
        key_bytes[i] = (unsigned char)(i * 131 + 7);
    slab[rank] = alloc_filled(bytes, 0);
    OK(more.cuMemcpyHtoD(slab[rank] + offsetof(struct ips_head, keys), &keys,
                         sizeof keys));
    in[rank] = alloc_filled(COUNT * sizeof(float), 0);
    out[rank] = alloc_filled(COUNT * sizeof(float), 0xff);
    page = mmap(NULL, IPS_CONTROL_BYTES, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    OK(gpu.cuMemHostRegister(page, IPS_CONTROL_BYTES,
                             GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP));
    control[rank] = page;
    OK(gpu.cuMemHostGetDevicePointer(&control_device[rank], control[rank], 0));
    stream[rank] = stream_new();
}

static void rank_destroy(int rank)
{
    OK(gpu.cuStreamDestroy(stream[rank]));
    OK(gpu.cuMemHostUnregister(control[rank]));
    munmap(control[rank], IPS_CONTROL_BYTES);
    OK(gpu.cuMemFree(slab[rank]));
    OK(gpu.cuMemFree(in[rank]));
    OK(gpu.cuMemFree(out[rank]));
}

static void launch(const char *name, void *args, unsigned blocks, unsigned threads,
                   int rank)
{
    gpu_function function;
    void *parameters[] = {args};
    OK(gpu.cuModuleGetFunction(&function, module, name));
    OK(gpu.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream[rank],
                          parameters, NULL));
}

static void *pointer(gpu_ptr address)
{
    return (void *)(uintptr_t)address;
}

static void *mailbox(int rank)
{
    return pointer(slab[rank] + IPS_HEAD_BYTES);
}

static void test_probe(void)
{
    for (int r = 0; r < RANKS; r++) {
        struct ips_probe_args args = {.mailbox = {mailbox(0), mailbox(1)},
                                      .control = pointer(control_device[r]),
                                      .seed = 4711,
                                      .deadline_ns = 500000000,
                                      .rank = (uint32_t)r,
                                      .nranks = RANKS};
        launch(IPS_KERNEL_PROBE, &args, 1, IPS_PROBE_THREADS, r);
        memset(&args, 0xee, sizeof args); /* the launch has copied it */
    }
    for (int r = 0; r < RANKS; r++) {
        OK(gpu.cuStreamSynchronize(stream[r]));
        tap(control[r]->probe_done == 1 && control[r]->probe_bad == 0,
            "the probe of rank %d passes: done %u, bad %u", r, control[r]->probe_done,
            control[r]->probe_bad);
    }
}

static void enqueue(const char *name, unsigned counter, int r, uint32_t captured)
{
    struct ips_allreduce_args args = {.in = pointer(in[r]),
                                      .out = pointer(out[r]),
                                      .count = COUNT,
                                      .head = pointer(slab[r]),
                                      .mailbox = {mailbox(0), mailbox(1)},
                                      .control = pointer(control_device[r]),
                                      .rank = (uint32_t)r,
                                      .nranks = RANKS,
                                      .type = IPS_FLOAT32,
                                      .element = 4,
                                      .op = IPS_SUM,
                                      .counter = counter,
                                      .peer = {0, 1},
                                      .captured = captured};
    launch(name, &args, CHANNELS, 256, r);
}

static int sums_right(float factor)
{
    float *copy = malloc(COUNT * sizeof *copy);
    int bad = 0;
    for (int r = 0; r < RANKS; r++) {
        OK(more.cuMemcpyDtoH(copy, out[r], COUNT * sizeof *copy));
        for (int i = 0; i < COUNT; i++)
            bad += copy[i] != factor * (float)(3 * i);
    }
    free(copy);
    if (bad)
        printf("# %d elements are wrong\n", bad);
    return !bad;
}

static void fill_inputs(void)
{
    float *values = malloc(COUNT * sizeof *values);
    for (int r = 0; r < RANKS; r++) {
        for (int i = 0; i < COUNT; i++)
            values[i] = (float)((r + 1) * i);
        OK(more.cuMemcpyHtoD(in[r], values, COUNT * sizeof *values));
    }
    free(values);
}

static void wait_all(void)
{
    for (int r = 0; r < RANKS; r++)
        OK(gpu.cuStreamSynchronize(stream[r]));
}

static gpu_exec capture(const char *name, unsigned counter, int rank)
{
    gpu_graph graph;
    gpu_exec exec;
    OK(more.cuStreamBeginCapture(stream[rank], CAPTURE_THREAD_LOCAL));
    enqueue(name, counter, rank, 1);
    OK(more.cuStreamEndCapture(stream[rank], &graph));
    OK(more.cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(more.cuGraphDestroy(graph));
    return exec;
}

static void test_allreduce(const char *name, unsigned counter)
{
    gpu_exec exec[RANKS];
    for (int r = 0; r < RANKS; r++)
        enqueue(name, counter, r, 0);
    wait_all();
    tap(sums_right(1), "%s: sum of two ranks", name);
    tap_is((long long)control[0]->count[counter], 0, "it is not counted");
    for (int r = 0; r < RANKS; r++) {
        exec[r] = capture(name, counter, r);
        OK(more.cuMemsetD8(out[r], 0xff, COUNT * sizeof(float)));
    }
    OK(more.cuCtxSynchronize());
    for (int i = 0; i < 4; i++)
        for (int r = 0; r < RANKS; r++)
            OK(more.cuGraphLaunch(exec[r], stream[r]));
    wait_all();
    tap(sums_right(1), "%s: replayed", name);
    tap_is((long long)control[0]->count[counter], 4, "replays are counted");
    for (int r = 0; r < RANKS; r++)
        OK(more.cuGraphExecDestroy(exec[r]));
}

void test_kernels(void)
{
    gpu_ptr global;
    gpu_function function;
    size_t bytes = 0;
    uint32_t version = 0;
    const unsigned char any[16] = {1};
    const void *image = ips_kernel_image_bytes ? (const void *)ips_kernel_image : any;
    int error = gpu.cuModuleLoadData(&module, image);
    if (error && !simulated) {
        printf("# no kernels for this GPU in this build (error %d): not tested\n", error);
        return;
    }
    tap_is(error, 0, "the module loads");
    OK(gpu.cuModuleGetGlobal(&global, &bytes, module, IPS_MODULE_VERSION));
    tap_is((long long)bytes, sizeof version, "the version global's size");
    OK(more.cuMemcpyDtoH(&version, global, sizeof version));
    tap_is(version, IPS_WIRE_VERSION, "the module is of this build");
    tap_is(gpu.cuModuleGetFunction(&function, module, "ips_no_such"), NOT_FOUND,
           "an unknown kernel is not found");
    for (int r = 0; r < RANKS; r++)
        rank_create(r);
    fill_inputs();
    test_probe();
    test_allreduce(IPS_KERNEL_RING_LL, 5);
    test_allreduce(IPS_KERNEL_RING_LL128, 6);
    test_allreduce(IPS_KERNEL_RING_SIMPLE, 7);
    test_allreduce(IPS_KERNEL_ONESHOT_LL, 8);
    test_allreduce(IPS_KERNEL_ONESHOT_LL128, 9);
    test_allreduce(IPS_KERNEL_TWOSHOT_LL, 10);
    test_allreduce(IPS_KERNEL_TWOSHOT_LL128, 11);
    for (int r = 0; r < RANKS; r++)
        rank_destroy(r);
    OK(gpu.cuModuleUnload(module));
}
