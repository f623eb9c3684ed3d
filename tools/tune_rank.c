/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of `ipcshim tune`: brings the engine up through its own door, with a key that
 * the parent chose, and NCCL beside it where there is one; no shim takes part. */
#include "tools/tune_rank.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/plan.h"
#include "shim/settings.h"
#include "tools/tool.h"

int tune_agree(struct tune_rank *r, const struct tune_slot *own, struct tune_slot *ret)
{
    struct tune_page *page = r->page;
    struct tune_slot most = *own;
    page->slot[r->rank] = *own;
    if (fleet_barrier(&page->sync))
        return -1;
    for (unsigned rank = 0; rank < page->sync.nranks; rank++) {
        const struct tune_slot *slot = &page->slot[rank];
        for (int mode = 0; mode < IPS_MODES; mode++)
            if (slot->us[mode] > most.us[mode])
                most.us[mode] = slot->us[mode];
        if (slot->flag > most.flag)
            most.flag = slot->flag;
    }
    *ret = most;
    return fleet_barrier(&page->sync) ? -1 : 0; /* all have read */
}

static int bring_up(struct tune_rank *r)
{
    struct tune_page *page = r->page;
    char reason[IPS_REASON_BYTES] = "";
    const struct ips_bringup_config config = {
        .key = page->key,
        .key_bytes = sizeof page->key,
        .rank = (int)r->rank,
        .settings = "",
        .channels = IPS_MAX_CHANNELS,
        .mem_max = UINT64_MAX,
        .links_any = 1, /* whoever tunes wants to know */
        .report_s = page->options.wait_s,
        .timeout_s = page->options.wait_s,
        .transport = (enum ips_transport)page->options.transport,
    };
    struct ips_bringup *bringup = ips_bringup_create(&config, reason);
    if (!bringup) {
        tool_fail("rank %u: %s", r->rank, reason);
        return -1;
    }
    if (fleet_barrier(&page->sync)) { /* all records are there */
        ips_bringup_destroy(bringup);
        return -1;
    }
    enum ips_bringup_state state;
    ips_bringup_start(bringup, (int)page->sync.nranks, (int)r->rank, r->device.ordinal);
    while ((state = ips_bringup_poll(bringup)) == IPS_BRINGUP_PENDING)
        sched_yield();
    if (state == IPS_BRINGUP_AGREED) {
        struct ips_agreed agreed;
        r->engine = ips_bringup_take(bringup, &agreed);
        r->place =
            (struct ips_policy_place){.ranks = page->sync.nranks,
                                      .link = agreed.link,
                                      .most_channels = ips_engine_channels(r->engine),
                                      .group = agreed.lineup.group,
                                      .uplink = agreed.lineup.uplink / 100.0};
        r->place = ips_plan_place(&ips_settings()->policy, &r->place);
        ips_engine_set_group(r->engine, r->place.group);
    } else if (r->rank == 0) {
        tool_fail("the engine can't work among %u ranks here: %s", page->sync.nranks,
                  ips_bringup_reason(bringup));
    }
    ips_bringup_destroy(bringup);
    return r->engine ? 0 : -1;
}

/* Without an NCCL, or where NCCL does not take these ranks, the engine is tuned alone. */
static int open_nccl(struct tune_rank *r)
{
    struct tune_page *page = r->page;
    const char *error = NULL;
    struct tune_slot own = {.flag = 1}, any;
    void *handle = page->options.beside ? nccl_real_open(&error) : NULL;
    if (handle)
        error = nccl_api_load(handle, &r->nccl);
    if (handle && !error && (r->rank || !r->nccl.GetUniqueId(&page->id)))
        own.flag = 0;
    if (tune_agree(r, &own, &any))
        return -1;
    if (!any.flag) {
        own.flag = r->nccl.CommInitRank(&r->comm, (int)page->sync.nranks, page->id,
                                        (int)r->rank) != NCCL_SUCCESS;
        if (tune_agree(r, &own, &any))
            return -1;
    }
    if (any.flag)
        r->comm = NULL; /* one that others have not is of no use, and may hang its end */
    if (any.flag && r->rank == 0 && page->options.beside)
        fprintf(stderr, "ipcshim: no NCCL to compare with among %u ranks%s%s\n",
                page->sync.nranks, error ? ": " : "", error ? error : "");
    return 0;
}

static int make_buffers(struct tune_rank *r)
{
    const struct tune_options *o = &r->page->options;
    const uint64_t most = o->size[o->nsizes - 1];
    r->host = malloc(most);
    r->right = malloc(most);
    if (!r->host || !r->right) {
        tool_fail("no memory for %llu bytes on the host", (unsigned long long)most);
        return -1;
    }
    return device_stream(&r->device, &r->stream) ||
           device_alloc(&r->device, most, &r->in) ||
           device_alloc(&r->device, most, &r->out);
}

/* Which machine this is, for the file. */
static int describe(struct tune_rank *r)
{
    const struct ips_gpu_api *gpu = r->device.gpu;
    struct tune_page *page = r->page;
    int count = 0;
    if (r->rank)
        return 0;
    page->place = r->place;
    page->has_nccl = r->comm != NULL;
    page->tuned.ranks = page->sync.nranks;
    page->tuned.link = r->place.link;
    page->tuned.group = r->place.group;
    if (gpu->cuDriverGetVersion(&page->driver) || gpu->cuDeviceGetCount(&count))
        return -1;
    for (int i = 0; i < count && i < IPS_TUNED_GPUS; i++) {
        gpu_device device;
        struct gpu_uuid uuid;
        char bus_id[32], name[64] = "", text[IPS_TUNED_GPU_BYTES];
        if (gpu->cuDeviceGet(&device, i) || gpu->cuDeviceGetUuid(&uuid, device) ||
            gpu->cuDeviceGetPCIBusId(bus_id, sizeof bus_id, device) ||
            r->device.cuDeviceGetName(name, sizeof name, device))
            return -1;
        ips_tuned_gpu_text(bus_id, uuid.bytes, text);
        snprintf(page->gpu[page->ngpus++], TUNE_GPU_BYTES, "%s %s", text, name);
    }
    return 0;
}

static void close_rank(struct tune_rank *r)
{
    if (r->comm)
        r->nccl.CommDestroy(r->comm);
    ips_engine_destroy(r->engine);
    device_free(&r->device, r->in);
    device_free(&r->device, r->out);
    r->device.gpu->cuStreamDestroy(r->stream);
    device_close(&r->device);
    free(r->host);
    free(r->right);
}

/* Arguments: the descriptor and the size of the page. RANK names the rank. */
int cmd_tune_rank(int argc, char **argv)
{
    uint64_t fd, bytes, rank;
    if (argc != 3 || tool_parse_number(argv[1], 0, 1 << 20, &fd) ||
        tool_parse_number(argv[2], sizeof(struct tune_page), SIZE_MAX, &bytes) ||
        !getenv("RANK") || tool_parse_number(getenv("RANK"), 0, IPS_MAX_RANKS - 1, &rank))
        return tool_fail("tune-rank is started by ipcshim tune only");
    struct tune_rank r = {.page = fleet_attach((int)fd, bytes), .rank = (unsigned)rank};
    if (!r.page)
        return tool_fail("cannot map the page");
    int error = device_open(&r.device, r.rank) || bring_up(&r) || make_buffers(&r) ||
                open_nccl(&r) || describe(&r);
    for (unsigned i = 0; i < r.page->options.nsizes && !error; i++) {
        error = tune_size(&r, r.page->options.size[i]);
        if (!error && r.rank == 0)
            __atomic_store_n(&r.page->done_sizes, i + 1, __ATOMIC_RELEASE);
    }
    if (error) /* peers may be gone, and a kernel hang: nothing may wait for them */
        _exit(TOOL_FAILED);
    close_rank(&r);
    return 0;
}
