/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text of `ipcshim doctor --probe`: lines of `key = value`, and rows of six
 * words. Nothing is believed that is not in range: a text with one bad line is refused as
 * a whole. */
#include "policy/verdicts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "policy/tokens.h"

#define MOST_GBPS 1000000

struct reader {
    int format_seen;
    unsigned char seen[IPS_LINK_TURNS][IPS_LINK_METHODS][IPS_VERDICTS_GPUS]
                      [IPS_VERDICTS_GPUS + 1];
    struct ips_verdicts *verdicts;
    const char *flaw;
};

const char *ips_link_method_name(int method)
{
    static const char *const names[IPS_LINK_METHODS] = {"store", "load", "copy"};
    return method >= 0 && method < IPS_LINK_METHODS ? names[method] : NULL;
}

const char *ips_link_turn_name(int turn)
{
    static const char *const names[IPS_LINK_TURNS] = {"alone", "ring"};
    return turn >= 0 && turn < IPS_LINK_TURNS ? names[turn] : NULL;
}

const char *ips_link_kind_name(int kind)
{
    static const char *const names[IPS_LINK_KINDS] = {
        "ok", "drops", "mirrors", "corrupts", "late", "fails", "unsupported"};
    return kind >= 0 && kind < IPS_LINK_KINDS ? names[kind] : NULL;
}

static int find_name(const struct ips_token *word, const char *(*name)(int))
{
    for (int i = 0; name(i); i++)
        if (ips_token_is(word, name(i)))
            return i;
    return -1;
}

/* 1 to 16 hexadecimal digits. */
static int read_hex(const struct ips_token *word, uint64_t *ret)
{
    uint64_t value = 0;
    if (!word->length || word->length > 16)
        return 0;
    for (size_t i = 0; i < word->length; i++) {
        const char *digits = "0123456789abcdef";
        const char *digit = word->at[i] ? strchr(digits, word->at[i]) : NULL;
        if (!digit)
            return 0;
        value = value << 4 | (uint64_t)(digit - digits);
    }
    *ret = value;
    return 1;
}

static int read_gpu(struct ips_verdicts *v, const struct ips_token *value, unsigned count)
{
    if (count < 2 || v->gpus == IPS_VERDICTS_GPUS || v->rows)
        return 0;
    char(*gpu)[48] = v->gpu[v->gpus++];
    if (!ips_token_copy(&value[0], gpu[0], sizeof gpu[0]))
        return 0;
    ips_verdicts_bus_id(gpu[0]);
    return ips_token_copy(&value[1], gpu[1], sizeof gpu[1]) &&
           ips_verdicts_gpu(v, gpu[0], NULL) == (int)v->gpus - 1;
}

static int read_bridge(struct ips_verdicts *v, const struct ips_token *value,
                       unsigned count)
{
    uint64_t control;
    if (count != 2 || v->bridges == IPS_VERDICTS_BRIDGES)
        return 0;
    v->bridge[v->bridges].acs = -1;
    if (!ips_token_is(&value[1], "unknown")) {
        if (!read_hex(&value[1], &control) || control > 0xffff)
            return 0;
        v->bridge[v->bridges].acs = (int)control;
    }
    return ips_token_copy(&value[0], v->bridge[v->bridges++].address,
                          sizeof v->bridge[0].address);
}

/* `key = value`, in any order; but the rows follow all GPUs. */
static int read_key(void *context, const struct ips_token *words, unsigned count)
{
    struct reader *r = context;
    struct ips_verdicts *v = r->verdicts;
    const struct ips_token *key = &words[0], *value = &words[2];
    uint64_t number;
    count -= 2;
    r->flaw = "an unknown key, or a value out of range";
    if (ips_token_is(key, "format")) {
        r->format_seen = 1;
        return count == 1 && ips_token_whole(value, IPS_VERDICTS_FORMAT, &number) &&
               number == IPS_VERDICTS_FORMAT;
    }
    if (ips_token_is(key, "gpu"))
        return read_gpu(v, value, count);
    if (ips_token_is(key, "acs"))
        return read_bridge(v, value, count);
    if (count != 1)
        return 0;
    if (ips_token_is(key, "made"))
        return ips_token_copy(value, v->made, sizeof v->made);
    if (ips_token_is(key, "driver"))
        return ips_token_copy(value, v->machine.driver, sizeof v->machine.driver);
    if (ips_token_is(key, "boot"))
        return ips_token_copy(value, v->machine.boot, sizeof v->machine.boot);
    return ips_token_is(key, "cmdline") && read_hex(value, &v->machine.cmdline);
}

static int read_place(const struct ips_verdicts *v, const struct ips_token *word)
{
    char bus_id[sizeof v->gpu[0][0]];
    if (ips_token_is(word, "host"))
        return IPS_VERDICTS_HOST;
    return ips_token_copy(word, bus_id, sizeof bus_id) ? ips_verdicts_gpu(v, bus_id, NULL)
                                                       : -1;
}

/* from to turn method kind GB/s */
static int read_row(void *context, const struct ips_token *words, unsigned count)
{
    struct reader *r = context;
    struct ips_verdicts *v = r->verdicts;
    r->flaw = "a row that is not six words in range";
    if (count != 6)
        return 0;
    const int from = read_place(v, &words[0]), to = read_place(v, &words[1]);
    const int turn = find_name(&words[2], ips_link_turn_name);
    const int method = find_name(&words[3], ips_link_method_name);
    const int kind = find_name(&words[4], ips_link_kind_name);
    double gbps = 0;
    if (from < 0 || from == IPS_VERDICTS_HOST || to < 0 || from == to || turn < 0 ||
        method < 0 || kind < 0 ||
        (!ips_token_is(&words[5], "-") &&
         !ips_token_decimal(&words[5], MOST_GBPS, &gbps)))
        return 0;
    r->flaw = "a row that is there already";
    if (r->seen[turn][method][from][to]++)
        return 0;
    v->row[v->rows++] =
        (struct ips_verdict_row){(unsigned)from,           (unsigned)to,
                                 (enum ips_link_turn)turn, (enum ips_link_method)method,
                                 (enum ips_link_kind)kind, gbps};
    return 1;
}

static const char *missing(const struct reader *r)
{
    const struct ips_verdicts *v = r->verdicts;
    return !r->format_seen       ? "format"
           : !*v->machine.driver ? "driver"
           : !*v->machine.boot   ? "boot"
           : !v->machine.cmdline ? "cmdline"
           : !v->gpus            ? "gpu"
                                 : NULL;
}

int ips_verdicts_parse(const char *text, size_t bytes, struct ips_verdicts *ret,
                       char *ret_reason)
{
    struct reader r = {.verdicts = ret};
    memset(ret, 0, sizeof *ret);
    ret_reason[0] = 0;
    if (bytes > IPS_VERDICTS_BYTES) {
        snprintf(ret_reason, IPS_VERDICTS_REASON_BYTES, "it is larger than 1 MB");
        return -1;
    }
    const unsigned line = ips_tokens_read(text, bytes, read_key, read_row, &r);
    if (line) {
        snprintf(ret_reason, IPS_VERDICTS_REASON_BYTES, "line %u: %s", line, r.flaw);
        return -1;
    }
    const char *key = missing(&r);
    if (key)
        snprintf(ret_reason, IPS_VERDICTS_REASON_BYTES, "it has no line \"%s = ...\"",
                 key);
    return key ? -1 : 0;
}

const char *ips_verdicts_stale(const struct ips_verdicts *verdicts,
                               const struct ips_verdicts_machine *now)
{
    const struct ips_verdicts_machine *then = &verdicts->machine;
    if (!*now->boot || strcmp(now->boot, then->boot) != 0)
        return "the machine was started since, or it is another";
    if (now->cmdline != then->cmdline)
        return "the kernel's command line is another";
    if (*now->driver && strcmp(now->driver, then->driver) != 0)
        return "the driver is another";
    return NULL;
}

void ips_verdicts_bus_id(char *bus_id)
{
    for (; *bus_id; bus_id++)
        if (*bus_id >= 'A' && *bus_id <= 'F')
            *bus_id = (char)(*bus_id - 'A' + 'a');
}

int ips_verdicts_gpu(const struct ips_verdicts *verdicts, const char *bus_id,
                     const char *uuid)
{
    for (unsigned i = 0; i < verdicts->gpus; i++)
        if (!strcasecmp(verdicts->gpu[i][0], bus_id) &&
            (!uuid || !strcmp(verdicts->gpu[i][1], uuid)))
            return (int)i;
    return -1;
}

int ips_verdict_broken(const struct ips_verdict_row *row)
{
    return row->kind != IPS_LINK_OK && row->kind != IPS_LINK_UNSUPPORTED;
}

enum ips_measured ips_verdicts_pair(const struct ips_verdicts *verdicts, unsigned from,
                                    unsigned to, const struct ips_verdict_row **ret_row)
{
    unsigned sound = 0;
    for (unsigned i = 0; i < verdicts->rows; i++) {
        const struct ips_verdict_row *row = &verdicts->row[i];
        if (row->from != from || row->to != to)
            continue;
        if (ips_verdict_broken(row)) {
            *ret_row = row;
            return IPS_MEASURED_BROKEN;
        }
        if (row->turn == IPS_LINK_ALONE && row->kind == IPS_LINK_OK)
            sound |= 1u << row->method;
    }
    return sound == (1u << IPS_LINK_METHODS) - 1 ? IPS_MEASURED_SOUND : IPS_UNMEASURED;
}

void ips_verdict_text(const struct ips_verdicts *verdicts,
                      const struct ips_verdict_row *row, char *ret, size_t room)
{
    static const char *const acts[IPS_LINK_METHODS] = {"stores", "loads", "copies"};
    static const char *const ends[IPS_LINK_KINDS] = {
        "arrive",          "are lost",    "arrive elsewhere", "arrive changed",
        "arrive too late", "do not work", "are not possible"};
    const int host = row->to >= verdicts->gpus;
    snprintf(ret, room, "%s of GPU %s %s %s%s %s (%s%s)", acts[row->method],
             verdicts->gpu[row->from][0], row->method == IPS_LINK_LOADS ? "from" : "to",
             host ? "host memory" : "GPU ", host ? "" : verdicts->gpu[row->to][0],
             ends[row->kind], ips_link_kind_name(row->kind),
             row->turn == IPS_LINK_RING ? ", while all of the ring do" : "");
}

/* The first word that looks like a version, "580.82.07". Whether there is one. */
static int find_version(const char *text, char *ret, size_t room)
{
    for (const char *at = text; *at && *at != '\n'; at += strspn(at, " \t")) {
        const struct ips_token word = {at, strcspn(at, " \t\n")};
        if (*at >= '0' && *at <= '9' && memchr(at, '.', word.length))
            return ips_token_copy(&word, ret, room);
        at += word.length;
    }
    return 0;
}

/* FNV-1a. */
static uint64_t hash(const char *text, size_t count)
{
    uint64_t sum = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ (unsigned char)text[i]) * 0x100000001b3ull;
    return sum;
}

void ips_verdicts_describe(const char *driver, int cuda_version, const char *boot,
                           const char *cmdline, struct ips_verdicts_machine *ret)
{
    const char *at = boot;
    struct ips_token word[IPS_LINE_TOKENS];
    memset(ret, 0, sizeof *ret);
    if (!find_version(driver, ret->driver, sizeof ret->driver) && cuda_version)
        snprintf(ret->driver, sizeof ret->driver, "cuda-%d", cuda_version);
    if (ips_tokens_next(&at, boot + strcspn(boot, "\n"), word))
        ips_token_copy(&word[0], ret->boot, sizeof ret->boot);
    ret->cmdline = hash(cmdline, strcspn(cmdline, "\n"));
}
