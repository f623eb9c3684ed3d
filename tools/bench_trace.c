/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON lines that the shim traced in one rank, and gives each case of a bench
 * what really happened to its AllReduce calls. Only flat objects of this project's own
 * writing. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/tool.h"

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

static int proto_of(const char *name)
{
    for (int proto = 0; proto < IPS_PROTOS; proto++)
        if (!strcmp(name, ips_proto_name(proto)))
            return proto;
    return -1;
}

static struct bench_took event_of(const char *line)
{
    struct bench_took event = {.calls = 1};
    char word[32];
    text_of(line, "route", word, sizeof word);
    event.route = strcmp(word, "engine") ? IPS_ROUTE_NCCL : IPS_ROUTE_ENGINE;
    text_of(line, "protocol", word, sizeof word);
    event.proto = event.route == IPS_ROUTE_ENGINE ? proto_of(word) : -1;
    text_of(line, "reason", event.reason, sizeof event.reason);
    return event;
}

static int same(const struct bench_took *a, const struct bench_took *b)
{
    return a->route == b->route && a->proto == b->proto && !strcmp(a->reason, b->reason);
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

int bench_trace_read(const char *path, struct bench_page *page, unsigned rank,
                     struct bench_took *took, uint64_t *ret_dropped)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;
    unsigned index = 0;
    uint64_t dropped = 0;
    memset(took, 0, page->ncases * sizeof *took);
    for (unsigned i = 0; i < page->ncases; i++)
        took[i] = (struct bench_took){.route = IPS_ROUTE_NCCL, .proto = -1};
    if (!file) {
        int error = -errno;
        tool_fail("rank %u left no trace at %s: %s", rank, path, strerror(-error));
        return error;
    }
    while (getline(&line, &room, file) > 0) {
        char event_kind[16], name[40];
        text_of(line, "event", event_kind, sizeof event_kind);
        text_of(line, "name", name, sizeof name);
        if (!strcmp(event_kind, "dropped"))
            dropped += number_of(line, "count");
        if (strcmp(event_kind, "call") || strcmp(name, "ncclAllReduce"))
            continue;
        while (index < page->ncases &&
               took[index].calls >= bench_result(page, index, rank)->calls)
            index++;
        if (index == page->ncases)
            break;
        struct bench_took event = event_of(line);
        add(&took[index], &event, belongs(line, &page->cases[index]));
    }
    free(line);
    fclose(file);
    *ret_dropped = dropped;
    return 0;
}
