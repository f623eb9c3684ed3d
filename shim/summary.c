/* SPDX-License-Identifier: Apache-2.0 */
/* The summary's counters: plain arrays, only ever added to, so that any number of threads
 * may count while one reads. */
#include "shim/summary.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "shim/trace_format.h"

/* The ways a call can go: NCCL, or the engine with each variant, launched at once,
 * captured into a graph, or replayed by one. */
enum { NCCL, EAGER, CAPTURED = EAGER + IPS_VARIANTS, REPLAYED = CAPTURED + IPS_VARIANTS };
#define WAYS (REPLAYED + IPS_VARIANTS)
#define UNKNOWN_SIZE IPS_SIZE_CLASSES /* one class more */
#define IN_PROGRESS 7 /* ncclInProgress: accepted, on a non-blocking communicator */

struct counter {
    uint64_t calls, bytes;
};
typedef struct counter call_counters[WAYS][IPS_SIZE_CLASSES + 1];

static call_counters *counters; /* [IPS_SLOTS] */
static uint64_t version;
static uint64_t retired[IPS_COUNTERS];
static ips_summary_source *source;

struct row {
    const char *name;
    int way, size_class;
    uint64_t calls, bytes;
};
typedef void row_function(struct ips_text *text, const struct row *row, int first);

int ips_summary_start(void)
{
    call_counters *fresh = calloc(IPS_SLOTS, sizeof *fresh);
    if (!fresh)
        return -ENOMEM;
    __atomic_store_n(&counters, fresh, __ATOMIC_RELEASE);
    return 0;
}

static int size_class(uint64_t bytes)
{
    if (bytes == IPS_TRACE_UNKNOWN)
        return UNKNOWN_SIZE;
    return (int)ips_size_class(bytes);
}

static int way_of(const struct ips_event *event)
{
    if (event->route != IPS_ROUTE_ENGINE)
        return NCCL;
    return (event->captured > 0 ? CAPTURED : EAGER) + event->variant;
}

void ips_summary_count(const struct ips_event *event)
{
    call_counters *all = __atomic_load_n(&counters, __ATOMIC_ACQUIRE);
    if (!all || (event->result && event->result != IN_PROGRESS))
        return;
    struct counter *counter = &all[event->call][way_of(event)][size_class(event->bytes)];
    __atomic_fetch_add(&counter->calls, 1, __ATOMIC_RELAXED);
    if (event->bytes != IPS_TRACE_UNKNOWN)
        __atomic_fetch_add(&counter->bytes, event->bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&version, 1, __ATOMIC_RELAXED);
}

void ips_summary_set_source(ips_summary_source *function)
{
    __atomic_store_n(&source, function, __ATOMIC_RELEASE);
}

void ips_summary_retire(const uint64_t *counts)
{
    for (size_t i = 0; i < IPS_COUNTERS; i++)
        if (counts[i])
            __atomic_fetch_add(&retired[i], counts[i], __ATOMIC_RELAXED);
}

/* Executions that the host did not launch, of ended and of living communicators. */
static void replays(uint64_t *counts)
{
    for (size_t i = 0; i < IPS_COUNTERS; i++)
        counts[i] = __atomic_load_n(&retired[i], __ATOMIC_RELAXED);
    ips_summary_source *living = __atomic_load_n(&source, __ATOMIC_ACQUIRE);
    if (living)
        living(counts);
}

uint64_t ips_summary_version(void)
{
    uint64_t counts[IPS_COUNTERS], sum = __atomic_load_n(&version, __ATOMIC_RELAXED);
    replays(counts);
    for (size_t i = 0; i < IPS_COUNTERS; i++)
        sum += counts[i];
    return sum;
}

/* Brings the rows of replays up to date. Replays are of ncclAllReduce only. */
static void refresh_replays(call_counters *all)
{
    uint64_t counts[IPS_COUNTERS];
    replays(counts);
    for (size_t variant = 0; variant < IPS_VARIANTS; variant++) {
        struct counter *row = all[IPS_SLOT_ncclAllReduce][REPLAYED + variant];
        for (size_t class = 0; class < IPS_SIZE_CLASSES; class ++)
            __atomic_store_n(&row[class].calls, counts[variant * IPS_SIZE_CLASSES + class],
                             __ATOMIC_RELAXED);
    }
}

static void each_row(struct ips_text *text, row_function *function)
{
    call_counters *all = __atomic_load_n(&counters, __ATOMIC_ACQUIRE);
    int first = 1;
    if (!all)
        return;
    refresh_replays(all);
    for (int call = 0; call < IPS_SLOTS; call++)
        for (int way = 0; way < WAYS; way++)
            for (int class = 0; class <= UNKNOWN_SIZE; class ++) {
                const struct counter *counter = &all[call][way][class];
                struct row row = {ips_slot_names[call], way, class,
                                  __atomic_load_n(&counter->calls, __ATOMIC_RELAXED),
                                  __atomic_load_n(&counter->bytes, __ATOMIC_RELAXED)};
                if (!row.calls)
                    continue;
                function(text, &row, first);
                first = 0;
            }
}

static const char *route_name(int way)
{
    return way == NCCL       ? "nccl"
           : way >= REPLAYED ? "engine (replayed)"
           : way >= CAPTURED ? "engine (captured)"
                             : "engine";
}

/* The engine's variant, or -1. */
static int variant_of(int way)
{
    return way == NCCL ? -1 : (way - EAGER) % IPS_VARIANTS;
}

static void json_row(struct ips_text *text, const struct row *row, int first)
{
    ips_text_add(text, "%s{\"name\":\"%s\"", first ? "" : ",", row->name);
    if (row->size_class == UNKNOWN_SIZE)
        ips_text_add(text, ",\"min_bytes\":null,\"max_bytes\":null");
    else
        ips_text_add(text, ",\"min_bytes\":%llu,\"max_bytes\":%llu",
                     row->size_class ? 1ull << row->size_class : 0ull,
                     (2ull << row->size_class) - 1);
    const int variant = variant_of(row->way);
    ips_text_add(text, ",\"route\":\"%s\",\"algorithm\":", route_name(row->way));
    ips_text_json(text, variant < 0 ? NULL : ips_algo_name(ips_variant_algo(variant)));
    ips_text_add(text, ",\"protocol\":");
    ips_text_json(text, variant < 0 ? NULL : ips_proto_name(ips_variant_proto(variant)));
    ips_text_add(text, ",\"calls\":%llu", (unsigned long long)row->calls);
    if (row->way >= REPLAYED || row->size_class == UNKNOWN_SIZE)
        ips_text_add(text, ",\"bytes\":null}");
    else
        ips_text_add(text, ",\"bytes\":%llu}", (unsigned long long)row->bytes);
}

void ips_summary_json(struct ips_text *text, const char *occasion, int rank, int pid)
{
    ips_format_head(text, "summary", ips_trace_now(), pid);
    ips_text_add(text, ",\"rank\":%d", rank);
    ips_text_add(text, ",\"occasion\":");
    ips_text_json(text, occasion);
    ips_text_add(text, ",\"rows\":[");
    each_row(text, json_row);
    ips_text_add(text, "]}\n");
}

/* A count of bytes with three digits at least: "65536 B" is "64 KiB". */
static void format_bytes(uint64_t bytes, char *text, size_t room)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int unit = 0;
    double value = (double)bytes;
    for (; value >= 1024 && unit < 6; unit++)
        value /= 1024;
    snprintf(text, room, value == (double)(uint64_t)value ? "%.0f %s" : "%.1f %s", value,
             units[unit]);
}

static void table_row(struct ips_text *text, const struct row *row, int first)
{
    char from[16] = "0 B", to[16], size[40] = "unknown", route[40], bytes[16] = "-";
    (void)first;
    if (row->size_class != UNKNOWN_SIZE) {
        if (row->size_class)
            format_bytes(1ull << row->size_class, from, sizeof from);
        format_bytes(2ull << row->size_class, to, sizeof to);
        snprintf(size, sizeof size, "%s to < %s", from, to);
        if (row->way < REPLAYED)
            format_bytes(row->bytes, bytes, sizeof bytes);
    }
    const char *variant = ips_variant_name(variant_of(row->way));
    snprintf(route, sizeof route, "%s %s", route_name(row->way), variant ? variant : "");
    ips_text_add(text, "  %-24s %-22s %-37s %10llu  %10s\n", row->name, size, route,
                 (unsigned long long)row->calls, bytes);
}

void ips_summary_table(struct ips_text *text, int rank, int pid, uint64_t dropped)
{
    ips_text_add(text, "ipcshim: NCCL calls of rank %d (pid %d)\n", rank, pid);
    ips_text_add(text, "  %-24s %-22s %-37s %10s  %10s\n", "call", "size", "route",
                 "calls", "bytes");
    size_t before = text->used;
    each_row(text, table_row);
    if (text->used == before)
        ips_text_add(text, "  none\n");
    if (dropped)
        ips_text_add(text, "  %llu events are missing from the trace: dropped\n",
                     (unsigned long long)dropped);
}
