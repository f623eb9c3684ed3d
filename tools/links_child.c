/* SPDX-License-Identifier: Apache-2.0 */
/* The child of `ipcshim doctor --probe` (hidden command): opens all GPUs in one process,
 * and measures what the page still lists, noting each step before it is made. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/ring_order.h"
#include "kernels/image.h"
#include "policy/tuned.h"
#include "tools/fleet.h"
#include "tools/links.h"
#include "tools/tool.h"

/* Says why the child can't begin. */
static int give_up(struct links_machine *m, const char *what, int error)
{
    snprintf(m->page->error, sizeof m->page->error, "%s: %s", what, ips_gpu_error(error));
    return TOOL_FAILED;
}

static void step(struct links_machine *m)
{
    __atomic_add_fetch(&m->page->steps, 1, __ATOMIC_RELEASE);
}

/* --- the GPUs --- */

/* Asking for its attributes makes a kernel resident now: at its first launch, others that
 * it is waited for by may run already. */
static int find_kernel(struct links_machine *m, gpu_module module, const char *name,
                       gpu_function *ret)
{
    int registers;
    LINKS_TRY(m->gpu->cuModuleGetFunction(ret, module, name));
    return m->gpu->cuFuncGetAttribute(&registers, GPU_FUNCTION_REGISTERS, *ret);
}

static int load(struct links_machine *m, struct links_gpu *at)
{
    static const unsigned char none[64];
    const void *image = ips_kernel_image_bytes ? (const void *)ips_kernel_image : none;
    gpu_module module;
    LINKS_TRY(m->gpu->cuModuleLoadData(&module, image));
    LINKS_TRY(find_kernel(m, module, IPS_KERNEL_PROBE, &at->probe));
    LINKS_TRY(find_kernel(m, module, IPS_KERNEL_LINK_STORE, &at->store));
    return find_kernel(m, module, IPS_KERNEL_LINK_CHECK, &at->check);
}

static int allocate(struct links_machine *m, struct links_gpu *at)
{
    const size_t results =
        (size_t)m->blocks * m->threads / 32 * sizeof(struct ips_link_result);
    LINKS_TRY(m->gpu->cuStreamCreate(&at->in, GPU_STREAM_NON_BLOCKING));
    LINKS_TRY(m->gpu->cuStreamCreate(&at->out, GPU_STREAM_NON_BLOCKING));
    LINKS_TRY(m->gpu->cuMemAlloc(&at->inbox, LINKS_DATA + m->bytes));
    LINKS_TRY(m->gpu->cuMemAlloc(&at->outbox, m->bytes));
    for (int i = 0; i < 2; i++)
        LINKS_TRY(m->gpu->cuMemAlloc(&at->result[i], results));
    return 0;
}

static int open_gpu(struct links_machine *m, unsigned gpu)
{
    struct links_gpu *at = &m->at[gpu];
    LINKS_TRY(m->gpu->cuDeviceGet(&at->id, (int)gpu));
    LINKS_TRY(m->gpu->cuDevicePrimaryCtxRetain(&at->context, at->id));
    LINKS_TRY(links_enter(m, gpu));
    LINKS_TRY(load(m, at));
    step(m);
    return allocate(m, at);
}

/* Host memory that a GPU can't map is no fault: it is then not measured. */
static void map_host(struct links_machine *m)
{
    const size_t bytes = LINKS_DATA + m->bytes;
    void *host =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED || links_enter(m, 0))
        return;
    memset(host, 0, bytes);
    if (m->gpu->cuMemHostRegister(host, bytes, GPU_HOST_PORTABLE | GPU_HOST_DEVICEMAP))
        return;
    m->host = host;
    for (unsigned gpu = 0; gpu < m->page->gpus; gpu++)
        if (links_enter(m, gpu) ||
            m->gpu->cuMemHostGetDevicePointer(&m->at[gpu].host, host, 0))
            m->at[gpu].host = 0;
}

static int open_peers(struct links_machine *m, unsigned from)
{
    for (unsigned to = 0; to < m->page->gpus; to++) {
        int can = 0;
        if (to == from)
            continue;
        LINKS_TRY(m->gpu->cuDeviceCanAccessPeer(&can, m->at[from].id, m->at[to].id));
        LINKS_TRY(links_enter(m, from));
        if (can && !m->gpu->cuCtxEnablePeerAccess(m->at[to].context, 0))
            m->at[from].peers |= 1u << to;
    }
    return 0;
}

static int name_gpu(struct links_machine *m, unsigned gpu)
{
    char bus_id[32], text[IPS_TUNED_GPU_BYTES];
    struct gpu_uuid uuid;
    gpu_device id;
    LINKS_TRY(m->gpu->cuDeviceGet(&id, (int)gpu));
    LINKS_TRY(m->gpu->cuDeviceGetUuid(&uuid, id));
    LINKS_TRY(m->gpu->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, id));
    ips_verdicts_bus_id(bus_id);
    ips_tuned_gpu_text(bus_id, uuid.bytes, text); /* "bus UUID" */
    snprintf(m->page->gpu[gpu][0], sizeof m->page->gpu[gpu][0], "%s", bus_id);
    snprintf(m->page->gpu[gpu][1], sizeof m->page->gpu[gpu][1], "%s",
             strchr(text, ' ') + 1);
    return 0;
}

/* --- what is to be measured --- */

/* As the engine's ring would go; by number where the machine does not show its tree. */
static void order_ring(struct links_page *page)
{
    struct ips_topology *t = calloc(1, sizeof *t);
    const int sys = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int gpu_of[IPS_VERDICTS_GPUS];
    unsigned ring[IPS_VERDICTS_GPUS];
    if (t && sys >= 0)
        ips_topology_read(sys, t);
    for (unsigned gpu = 0; gpu < page->gpus; gpu++) {
        ips_address address;
        gpu_of[gpu] = -1;
        for (unsigned i = 0; t && i < t->gpus; i++)
            if (!ips_address_parse(page->gpu[gpu][0], &address) &&
                t->device[i].address == address)
                gpu_of[gpu] = (int)i;
    }
    if (t)
        ips_ring_order(t, gpu_of, page->gpus, ring);
    for (unsigned i = 0; i < page->gpus; i++)
        page->ring[i] = t ? ring[i] : i;
    if (sys >= 0)
        close(sys);
    free(t);
}

static void list(struct links_page *page)
{
    for (int method = 0; method < IPS_LINK_METHODS; method++) {
        for (unsigned from = 0; from < page->gpus; from++) {
            for (unsigned to = 0; to < page->gpus; to++)
                if (to != from)
                    page->cell[IPS_LINK_ALONE][method][from][to].state = LINKS_TODO;
            page->cell[IPS_LINK_ALONE][method][from][IPS_VERDICTS_HOST].state =
                LINKS_TODO;
        }
        for (unsigned i = 0; page->gpus > 1 && i < page->gpus; i++)
            page->cell[IPS_LINK_RING][method][page->ring[i]]
                      [page->ring[(i + 1) % page->gpus]]
                          .state = LINKS_TODO;
    }
}

static int describe(struct links_machine *m)
{
    struct links_page *page = m->page;
    int count = 0;
    LINKS_TRY(m->gpu->cuDriverGetVersion(&page->cuda));
    LINKS_TRY(m->gpu->cuDeviceGetCount(&count));
    page->gpus = count < IPS_VERDICTS_GPUS ? (unsigned)count : IPS_VERDICTS_GPUS;
    page->left_out = (unsigned)count - page->gpus;
    for (unsigned gpu = 0; gpu < page->gpus; gpu++)
        LINKS_TRY(name_gpu(m, gpu));
    page->bytes = m->bytes;
    order_ring(page);
    list(page);
    __atomic_store_n(&page->described, 1, __ATOMIC_RELEASE);
    return 0;
}

/* --- measuring --- */

static void set_state(struct links_cell *cell, enum links_state state)
{
    __atomic_store_n(&cell->state, state, __ATOMIC_RELEASE);
}

static void note(struct links_machine *m, int method, struct links_cell *cell,
                 const struct links_pair *pair)
{
    const double bytes = (double)m->passes[method] * (double)m->bytes;
    cell->kind = (uint32_t)pair->kind;
    cell->gbps =
        pair->kind == IPS_LINK_OK && pair->seconds > 0 ? bytes / pair->seconds * 1e-9 : 0;
    memcpy(cell->detail, pair->detail, sizeof cell->detail);
    set_state(cell, LINKS_DONE);
}

static int can_use(const struct links_machine *m, unsigned from, unsigned to)
{
    return to == IPS_VERDICTS_HOST ? m->at[from].host != 0 : m->at[from].peers >> to & 1;
}

/* Adds the pair to the set if it is still to be measured, and can be. */
static void add(struct links_machine *m, struct links_set *set, struct links_cell *cell,
                unsigned from, unsigned to)
{
    if (cell->state != LINKS_TODO)
        return;
    if (can_use(m, from, to)) {
        set->pair[set->count++] = (struct links_pair){.from = from, .to = to};
        set_state(cell, LINKS_RUNS);
    } else {
        const struct links_pair none = {.kind = IPS_LINK_UNSUPPORTED};
        note(m, (int)set->method, cell, &none);
    }
}

static int measure(struct links_machine *m, struct links_set *set,
                   struct links_cell (*cell)[IPS_VERDICTS_GPUS + 1])
{
    int error = 0;
    step(m);
    if (set->count)
        error = links_measure(m, set);
    for (unsigned i = 0; i < set->count; i++) {
        struct links_pair *pair = &set->pair[i];
        if (error) {
            pair->kind = IPS_LINK_FAILS;
            snprintf(pair->detail, sizeof pair->detail, "%s", ips_gpu_error(error));
        }
        note(m, (int)set->method, &cell[pair->from][pair->to], pair);
    }
    return error;
}

static int measure_alone(struct links_machine *m, int method)
{
    struct links_cell(*cell)[IPS_VERDICTS_GPUS + 1] =
        m->page->cell[IPS_LINK_ALONE][method];
    for (unsigned from = 0; from < m->page->gpus; from++)
        for (unsigned to = 0; to <= IPS_VERDICTS_HOST; to++) {
            struct links_set set = {.method = (enum ips_link_method)method};
            add(m, &set, &cell[from][to], from, to);
            LINKS_TRY(measure(m, &set, cell));
        }
    return 0;
}

/* Of pairs whose stores arrive in both directions: whether they do while both kernels
 * stay. Which direction fails then is not known: both count. */
static int measure_resident(struct links_machine *m)
{
    struct links_cell(*cell)[IPS_VERDICTS_GPUS + 1] =
        m->page->cell[IPS_LINK_ALONE][IPS_LINK_STORES];
    for (unsigned a = 0; a < m->page->gpus; a++)
        for (unsigned b = 0; b < a; b++) {
            struct links_cell *way[2] = {&cell[a][b], &cell[b][a]};
            int bad = 0;
            if (way[0]->kind != IPS_LINK_OK || way[1]->kind != IPS_LINK_OK)
                continue;
            for (int i = 0; i < 2; i++)
                set_state(way[i], LINKS_RUNS);
            step(m);
            const int error = links_resident(m, a, b, &bad);
            for (int i = 0; i < 2; i++) {
                if (error || bad) {
                    way[i]->kind = error ? IPS_LINK_FAILS : IPS_LINK_LATE;
                    way[i]->gbps = 0;
                    snprintf(way[i]->detail, sizeof way[i]->detail, "%s",
                             error ? ips_gpu_error(error)
                                   : "not while the kernels of both GPUs stay");
                }
                set_state(way[i], LINKS_DONE);
            }
            LINKS_TRY(error);
        }
    return 0;
}

static int measure_ring(struct links_machine *m, int method)
{
    struct links_cell(*cell)[IPS_VERDICTS_GPUS + 1] =
        m->page->cell[IPS_LINK_RING][method];
    struct links_set set = {.method = (enum ips_link_method)method};
    for (unsigned i = 0; i < m->page->gpus; i++) {
        const unsigned from = m->page->ring[i];
        const unsigned to = m->page->ring[(i + 1) % m->page->gpus];
        add(m, &set, &cell[from][to], from, to);
    }
    return measure(m, &set, cell);
}

static int measure_all(struct links_machine *m)
{
    for (int method = 0; method < IPS_LINK_METHODS; method++) {
        LINKS_TRY(measure_alone(m, method));
        if (method == IPS_LINK_STORES)
            LINKS_TRY(measure_resident(m));
    }
    for (int method = 0; method < IPS_LINK_METHODS; method++)
        LINKS_TRY(measure_ring(m, method));
    return 0;
}

static int open_all(struct links_machine *m)
{
    char what[64];
    for (unsigned gpu = 0; gpu < m->page->gpus; gpu++) {
        const int error = open_gpu(m, gpu);
        snprintf(what, sizeof what, "GPU %s cannot be used", m->page->gpu[gpu][0]);
        if (error)
            return give_up(m, what, error);
        step(m);
    }
    for (unsigned gpu = 0; gpu < m->page->gpus; gpu++)
        if (open_peers(m, gpu))
            return give_up(m, "peer access cannot be asked for", 0);
    map_host(m);
    return 0;
}

/* The driver's tables, and how much is to be moved: little on the stand-in. */
static int prepare(struct links_machine *m)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    void *copy = cuda ? dlsym(cuda, "cuMemcpyAsync") : NULL;
    m->gpu = ips_gpu();
    if (!m->gpu || !copy) {
        snprintf(m->page->error, sizeof m->page->error,
                 "no usable CUDA driver (libcuda.so.1)");
        return TOOL_FAILED;
    }
    memcpy(&m->copy, &copy, sizeof copy);
    m->page->simulated = dlsym(cuda, "simgpu_quiet") != NULL;
    m->blocks = m->page->simulated ? 2 : IPS_LINK_MAX_BLOCKS;
    m->threads = m->page->simulated ? 64 : IPS_LINK_MAX_THREADS;
    m->passes[IPS_LINK_STORES] = m->passes[IPS_LINK_LOADS] = m->page->simulated ? 1 : 8;
    m->passes[IPS_LINK_COPIES] = m->page->simulated ? 1 : 32; /* the host times them */
    m->bytes = m->page->simulated ? 64 << 10 : 4 << 20;
    m->units = m->bytes / 16;
    m->look = malloc(LINKS_DATA + m->bytes);
    return m->look ? 0 : TOOL_FAILED;
}

int cmd_links_child(int argc, char **argv)
{
    static struct links_machine m = {.entered = -1};
    int error = TOOL_FAILED;
    m.page = argc == 2 ? fleet_attach(atoi(argv[1]), sizeof *m.page) : NULL;
    if (!m.page || prepare(&m))
        return TOOL_FAILED;
    if (!m.page->described && (error = describe(&m)))
        return give_up(&m, "the GPUs cannot be listed", error);
    if (open_all(&m) || measure_all(&m))
        return TOOL_FAILED;
    return 0;
}
