/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text of `ipcshim tune`: lines of `key = value`, and rows of seven words.
 * Nothing is believed that is not in range: a text with one bad line is refused as a
 * whole. */
#include "policy/tuned.h"

#include <stdio.h>
#include <string.h>

#include "kernels/names.h"
#include "policy/tokens.h"

#define MOST_BYTES (UINT64_C(1) << 40)
#define MOST_US 1e9

struct reader {
    const struct ips_tuned_machine *machine;
    const char *foreign; /* in what it is another's, or NULL */
    unsigned gpus;       /* bits: machine->gpu[i] is named */
    int any_gpu, format_seen, table_seen, gpu_seen;
    int wanted; /* the rows are of the table that is looked for */
    unsigned ranks;
    enum ips_link link;
    uint64_t last_bytes; /* of the table's last row */
    unsigned sizes;      /* of the table so far */
    int found;
    struct ips_tuned *tuned;
    const char *flaw;
};

/* Positive. */
static int parse_us(const struct ips_token *word, double *ret)
{
    return ips_token_decimal(word, (uint64_t)MOST_US, ret) && *ret > 0;
}

/* Position of the word among names[0], names[1], ..., or -1. */
static int find_name(const struct ips_token *word, const char *(*name)(int))
{
    for (int i = 0; name(i); i++)
        if (ips_token_is(word, name(i)))
            return i;
    return -1;
}

static int foreign(struct reader *r, const char *in_what)
{
    if (!r->foreign)
        r->foreign = in_what;
    return 1;
}

static int read_gpu(struct reader *r, const struct ips_token *value, unsigned count)
{
    r->gpu_seen = 1;
    if (count == 1 && ips_token_is(value, "any")) {
        r->any_gpu = 1;
        return 1;
    }
    if (count < 2)
        return 0;
    for (unsigned i = 0; r->machine && i < r->machine->count && i < IPS_TUNED_GPUS; i++) {
        const char *gpu = r->machine->gpu[i];
        const size_t bus = strcspn(gpu, " ");
        const struct ips_token uuid = {gpu + bus + (gpu[bus] == ' '),
                                       strlen(gpu) - bus - (gpu[bus] == ' ')};
        if (value[0].length == bus && !memcmp(value[0].at, gpu, bus) &&
            value[1].length == uuid.length && !memcmp(value[1].at, uuid.at, uuid.length))
            r->gpus |= 1u << i;
    }
    return 1;
}

static int read_table(struct reader *r, const struct ips_token *value, unsigned count)
{
    uint64_t ranks, group = 0;
    if (count < 2 || count > 3 || !ips_token_whole(&value[0], IPS_MAX_RANKS, &ranks) ||
        ranks < IPS_MIN_RANKS)
        return 0;
    if (count == 3 && (!ips_token_whole(&value[2], IPS_MAX_RANKS, &group) ||
                       !ips_groups_valid((unsigned)group, (unsigned)ranks)))
        return 0;
    const int link = find_name(&value[1], ips_link_name);
    if (link < 0)
        return 0;
    r->table_seen = 1;
    r->wanted = ranks == r->ranks && (enum ips_link)link == r->link;
    r->last_bytes = 0;
    r->sizes = 0;
    if (!r->wanted)
        return 1;
    r->tuned->group = (unsigned)group;
    r->flaw = "a table that is there already";
    return !r->found++;
}

/* `key = value`, in any order; but the rows of a table follow its line. */
static int read_key(void *context, const struct ips_token *words, unsigned count)
{
    struct reader *r = context;
    const struct ips_token *key = &words[0], *value = &words[2];
    const struct ips_tuned_machine *m = r->machine;
    uint64_t number;
    count -= 2;
    r->flaw = "an unknown key, or a value out of range";
    if (ips_token_is(key, "format")) {
        r->format_seen = 1;
        return count == 1 && ips_token_whole(value, IPS_TUNED_FORMAT, &number) &&
               number == IPS_TUNED_FORMAT;
    }
    if (ips_token_is(key, "library"))
        return count == 1 && (!m || ips_token_is(value, m->library) ||
                              foreign(r, "another version of ipcshim"));
    if (ips_token_is(key, "wire"))
        return count == 1 && ips_token_whole(value, INT32_MAX, &number) &&
               (!m || number == (uint64_t)m->wire ||
                foreign(r, "another version of the wire protocols"));
    if (ips_token_is(key, "driver"))
        return count == 1 && ips_token_whole(value, INT32_MAX, &number) &&
               (!m || number == (uint64_t)m->driver || foreign(r, "another driver"));
    if (ips_token_is(key, "gpu"))
        return read_gpu(r, value, count);
    if (ips_token_is(key, "table"))
        return read_table(r, value, count);
    return 0;
}

static int read_candidate(const struct ips_token *words, struct ips_candidate *ret)
{
    const int algo = find_name(&words[0], ips_algo_name);
    const int proto = find_name(&words[1], ips_proto_name);
    const int variant = algo < 0 || proto < 0 ? -1 : ips_variant_of(algo, proto);
    uint64_t channels, threads;
    if (variant < 0 || !ips_token_whole(&words[2], IPS_MAX_CHANNELS, &channels) ||
        !channels ||
        !ips_token_whole(&words[3], ips_variant_max_threads(variant), &threads) ||
        !threads || threads % 32)
        return 0;
    *ret = (struct ips_candidate){(enum ips_variant)variant, (unsigned)channels,
                                  (unsigned)threads};
    return 1;
}

/* bytes algorithm protocol channels threads eager graph; or bytes nccl - - - eager graph
 */
static int read_row(void *context, const struct ips_token *words, unsigned count)
{
    struct reader *r = context;
    struct ips_tuned_row row = {0};
    r->flaw = "a row that is not seven words in range";
    if (!r->table_seen || count != 7 ||
        !ips_token_whole(&words[0], MOST_BYTES, &row.bytes) || !row.bytes)
        return 0;
    row.nccl = ips_token_is(&words[1], "nccl");
    if (!(row.nccl ? ips_token_is(&words[2], "-") && ips_token_is(&words[3], "-") &&
                         ips_token_is(&words[4], "-")
                   : read_candidate(&words[1], &row.candidate)) ||
        !parse_us(&words[5], &row.times.us[IPS_MODE_EAGER]) ||
        !parse_us(&words[6], &row.times.us[IPS_MODE_GRAPH]))
        return 0;
    r->flaw = "sizes that do not rise, or too many of them";
    if (row.bytes < r->last_bytes)
        return 0;
    r->sizes += row.bytes > r->last_bytes;
    r->last_bytes = row.bytes;
    if (r->sizes > IPS_TUNED_SIZES)
        return 0;
    if (!r->wanted)
        return 1;
    r->flaw = "too many rows";
    if (r->tuned->count == IPS_TUNED_ROWS)
        return 0;
    r->tuned->row[r->tuned->count++] = row;
    return 1;
}

/* Whether the text is this machine's; a text for any GPU is for any machine. */
static int is_ours(struct reader *r)
{
    if (r->any_gpu || !r->machine)
        return 1;
    if (!r->gpus || r->gpus != (1u << r->machine->count) - 1)
        foreign(r, "other GPUs");
    return !r->foreign;
}

enum ips_tuned_verdict ips_tuned_parse(const char *text, size_t bytes,
                                       const struct ips_tuned_machine *machine,
                                       unsigned ranks, enum ips_link link,
                                       struct ips_tuned *ret, char *ret_reason)
{
    struct reader r = {.machine = machine, .ranks = ranks, .link = link, .tuned = ret};
    ret->ranks = ranks;
    ret->link = link;
    ret->count = 0;
    ret_reason[0] = 0;
    if (bytes > IPS_TUNED_BYTES) {
        snprintf(ret_reason, IPS_TUNED_REASON_BYTES, "it is larger than 1 MB");
        return IPS_TUNED_DAMAGED;
    }
    const unsigned line = ips_tokens_read(text, bytes, read_key, read_row, &r);
    if (line) {
        snprintf(ret_reason, IPS_TUNED_REASON_BYTES, "line %u: %s", line, r.flaw);
        return IPS_TUNED_DAMAGED;
    }
    if (!r.format_seen || !r.gpu_seen) {
        snprintf(ret_reason, IPS_TUNED_REASON_BYTES, "it has no line \"%s = ...\"",
                 r.format_seen ? "gpu" : "format");
        return IPS_TUNED_DAMAGED;
    }
    if (!is_ours(&r)) {
        snprintf(ret_reason, IPS_TUNED_REASON_BYTES, "it was made with %s", r.foreign);
        return IPS_TUNED_FOREIGN;
    }
    if (ret->count)
        return IPS_TUNED_OK;
    snprintf(ret_reason, IPS_TUNED_REASON_BYTES, "it has no table of %u ranks, %s", ranks,
             ips_link_name((int)link));
    return IPS_TUNED_ABSENT;
}

void ips_tuned_gpu_text(const char *bus_id, const unsigned char *uuid, char *ret)
{
    const size_t bus = strcspn(bus_id, " \t\r\n");
    int used = snprintf(ret, IPS_TUNED_GPU_BYTES, "%.*s GPU-", (int)(bus < 31 ? bus : 31),
                        bus_id);
    for (int i = 0; i < 16; i++)
        used += snprintf(ret + used, IPS_TUNED_GPU_BYTES - (size_t)used, "%s%02x",
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}
