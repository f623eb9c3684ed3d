/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON lines that the shim traces in one rank, and gives each case of a bench
 * what really happened to its AllReduce calls. Only flat objects of this project's own
 * writing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"

/* Start of the value of a key, or NULL. */
static const char *value_of(const char *line, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(line, quoted);
    if (!at)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

/* A string's value into text[size], "" when it is missing or null. */
static void text_of(const char *line, const char *key, char *text, size_t size)
{
    const char *at = value_of(line, key);
    size_t used = 0;
    for (at = at && *at == '"' ? at + 1 : ""; *at && *at != '"' && used + 1 < size;
         at++) {
        if (*at == '\\' && at[1])
            at++;
        text[used++] = *at;
    }
    text[used] = '\0';
}

static uint64_t number_of(const char *line, const char *key)
{
    const char *at = value_of(line, key);
    return at ? strtoull(at, NULL, 10) : 0;
}

static int variant_of(const char *algorithm, const char *protocol)
{
    for (int variant = 0; variant < IPS_VARIANTS; variant++)
        if (!strcmp(algorithm, ips_algo_name(ips_variant_algo(variant))) &&
            !strcmp(protocol, ips_proto_name(ips_variant_proto(variant))))
            return variant;
    return -1;
}

static struct bench_took event_of(const char *line)
{
    struct bench_took event = {.calls = 1};
    char word[32], algorithm[32];
    text_of(line, "route", word, sizeof word);
    event.route = strcmp(word, "engine") ? IPS_ROUTE_NCCL : IPS_ROUTE_ENGINE;
    text_of(line, "algorithm", algorithm, sizeof algorithm);
    text_of(line, "protocol", word, sizeof word);
    event.variant = event.route == IPS_ROUTE_ENGINE ? variant_of(algorithm, word) : -1;
    event.channels = (unsigned)number_of(line, "channels");
    text_of(line, "reason", event.reason, sizeof event.reason);
    return event;
}

static int same(const struct bench_took *a, const struct bench_took *b)
{
    return a->route == b->route && a->variant == b->variant && a->channels == b->channels &&
           !strcmp(a->reason, b->reason);
}

static int belongs(const char *line, const struct bench_case *c)
{
    char type[16], op[16];
    text_of(line, "type", type, sizeof type);
    text_of(line, "op", op, sizeof op);
    return number_of(line, "count") == c->count &&
           !strcmp(type, ips_type_name(c->type)) && !strcmp(op, ips_op_name(c->op));
}

static void add(struct bench_took *took, const struct bench_took *event, int belonged)
{
    if (!took->calls) {
        *took = *event;
        took->disagree = !belonged;
        return;
    }
    took->calls++;
    took->disagree += !belonged || !same(took, event);
}

static void take_call(struct bench_trace *trace, const char *line)
{
    while (trace->index < trace->page->ncases &&
           trace->took[trace->index].calls >=
               bench_calls(trace->page, trace->index, trace->rank))
        trace->index++;
    if (trace->index == trace->page->ncases)
        return;
    struct bench_took event = event_of(line);
    add(&trace->took[trace->index], &event,
        belongs(line, &trace->page->cases[trace->index]));
}

static void take_line(struct bench_trace *trace, const char *line)
{
    char event[16], text[40];
    text_of(line, "event", event, sizeof event);
    if (!strcmp(event, "dropped")) {
        trace->dropped += number_of(line, "count");
    } else if (!strcmp(event, "comm")) {
        text_of(line, "route", text, sizeof text);
        trace->served = !strcmp(text, "engine");
        text_of(line, "transport", trace->transport, sizeof trace->transport);
    } else if (!strcmp(event, "call")) {
        text_of(line, "name", text, sizeof text);
        if (!strcmp(text, "ncclAllReduce"))
            take_call(trace, line);
    }
}

int bench_trace_open(struct bench_trace *trace, struct bench_page *page, unsigned rank,
                     const char *path)
{
    *trace = (struct bench_trace){.page = page, .rank = rank, .served = -1};
    snprintf(trace->path, sizeof trace->path, "%s", path);
    trace->took = calloc(page->ncases, sizeof *trace->took);
    if (!trace->took)
        return -ENOMEM;
    for (unsigned i = 0; i < page->ncases; i++)
        trace->took[i] = (struct bench_took){.route = IPS_ROUTE_NCCL, .variant = -1};
    return 0;
}

/* A line without its end is still being written: it is read again later. */
void bench_trace_advance(struct bench_trace *trace)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    if (!trace->file && !(trace->file = fopen(trace->path, "re")))
        return;
    clearerr(trace->file);
    long start = ftell(trace->file);
    while ((length = getline(&line, &room, trace->file)) > 0) {
        if (line[length - 1] != '\n') {
            fseek(trace->file, start, SEEK_SET);
            break;
        }
        start += length;
        take_line(trace, line);
    }
    free(line);
}

void bench_trace_close(struct bench_trace *trace)
{
    if (trace->file)
        fclose(trace->file);
    free(trace->took);
    trace->file = NULL;
    trace->took = NULL;
}
