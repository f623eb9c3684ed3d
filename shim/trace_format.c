/* SPDX-License-Identifier: Apache-2.0 */
/* Events as JSON: one object per line, times in seconds since 1970 with nine decimals. */
#include "shim/trace_format.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

unsigned ips_trace_type_bytes(int type)
{
    /* 10 and 11 are the 8-bit floats of NCCL 2.24. */
    return type == 10 || type == 11 ? 1 : ips_type_bytes(type);
}

static const char *type_name(int type)
{
    return type == 10 ? "float8e4m3" : type == 11 ? "float8e5m2" : ips_type_name(type);
}

void ips_format_head(struct ips_text *text, const char *event, uint64_t time_ns, int pid)
{
    ips_text_add(text, "{\"event\":\"%s\",\"time\":%llu.%09llu,\"pid\":%d", event,
                 (unsigned long long)(time_ns / 1000000000),
                 (unsigned long long)(time_ns % 1000000000), pid);
}

void ips_format_start(struct ips_text *text, const struct ips_trace_config *config,
                      int pid)
{
    ips_format_head(text, "start", ips_trace_now(), pid);
    ips_text_add(
        text, ",\"rank\":%d,\"ipcshim\":\"" IPCSHIM_VERSION "\",\"nccl\":", config->rank);
    ips_text_json(text, config->nccl);
    ips_text_add(text, ",\"enabled\":%s}\n", config->enabled ? "true" : "false");
}

void ips_format_dropped(struct ips_text *text, uint64_t now, uint64_t total, int pid)
{
    ips_format_head(text, "dropped", ips_trace_now(), pid);
    ips_text_add(text, ",\"count\":%llu,\"total\":%llu}\n", (unsigned long long)now,
                 (unsigned long long)total);
}

static void add_number(struct ips_text *text, const char *key, int64_t value)
{
    if (value < 0)
        ips_text_add(text, ",\"%s\":null", key);
    else
        ips_text_add(text, ",\"%s\":%lld", key, (long long)value);
}

static void add_route(struct ips_text *text, const struct ips_event *event)
{
    int engine = event->route == IPS_ROUTE_ENGINE;
    ips_text_add(text, ",\"route\":\"%s\"", engine ? "engine" : "nccl");
    if (event->kind == IPS_EVENT_CALL) {
        int known = engine && event->variant < IPS_VARIANTS;
        ips_text_add(text, ",\"algorithm\":");
        ips_text_json(text, known ? ips_algo_name(ips_variant_algo(event->variant)) : NULL);
        ips_text_add(text, ",\"protocol\":");
        ips_text_json(text, known ? ips_proto_name(ips_variant_proto(event->variant)) : NULL);
        add_number(text, "channels", known ? event->channels : -1);
    }
    ips_text_add(text, ",\"reason\":");
    ips_text_json(text, event->reason);
}

/* A type or operation without a name is given by its number; -1 is none. Operations from
 * 5 on are made by ncclRedOpCreatePreMulSum, and their numbers mean nothing. */
static void add_type_and_op(struct ips_text *text, const struct ips_event *event)
{
    const char *type = type_name(event->type);
    if (type)
        ips_text_add(text, ",\"type\":\"%s\"", type);
    else
        add_number(text, "type", event->type);
    if (event->op < 0)
        ips_text_add(text, ",\"op\":null");
    else
        ips_text_add(text, ",\"op\":\"%s\"",
                     ips_op_name(event->op) ? ips_op_name(event->op) : "custom");
}

static void add_call(struct ips_text *text, const struct ips_event *event)
{
    ips_text_add(text, ",\"name\":\"%s\",\"bytes\":", ips_slot_names[event->call]);
    if (event->bytes == IPS_TRACE_UNKNOWN)
        ips_text_add(text, "null");
    else
        ips_text_add(text, "%llu", (unsigned long long)event->bytes);
    ips_text_add(text, ",\"count\":%llu", (unsigned long long)event->count);
    add_type_and_op(text, event);
    ips_text_add(text, ",\"stream\":\"0x%llx\",\"captured\":%s",
                 (unsigned long long)(uintptr_t)event->stream,
                 event->captured < 0 ? "null"
                 : event->captured   ? "true"
                                     : "false");
}

void ips_format_event(struct ips_text *text, const struct ips_event *event, int pid)
{
    static const char *const kinds[] = {"call", "comm", "comm_end"};
    ips_format_head(text, kinds[event->kind], event->time_ns, pid);
    add_number(text, "rank", event->rank);
    add_number(text, "comm", event->comm);
    if (event->kind == IPS_EVENT_CALL)
        add_call(text, event);
    else
        ips_text_add(text, ",\"ranks\":%llu", (unsigned long long)event->count);
    if (event->kind == IPS_EVENT_COMM) {
        ips_text_add(text, ",\"transport\":");
        ips_text_json(text, event->transport);
    }
    add_route(text, event);
    if (event->result)
        ips_text_add(text, ",\"result\":%d", event->result);
    ips_text_add(text, "}\n");
}

static int put(char *ret, size_t room, size_t *used, const char *piece)
{
    size_t length = strlen(piece);
    if (*used + length >= room)
        return -ENAMETOOLONG;
    memcpy(ret + *used, piece, length + 1);
    *used += length;
    return 0;
}

int ips_trace_expand(const char *path, int pid, int rank, char *ret, size_t room)
{
    size_t used = 0;
    for (; *path; path++) {
        char piece[16] = {*path, 0};
        if (path[0] == '%' && path[1] == 'p')
            snprintf(piece, sizeof piece, "%d", pid);
        else if (path[0] == '%' && path[1] == 'r')
            snprintf(piece, sizeof piece, "%d", rank);
        if (path[0] == '%' && path[1] && strchr("pr%", path[1]))
            path++;
        int error = put(ret, room, &used, piece);
        if (error)
            return error;
    }
    return used ? 0 : -EINVAL;
}
