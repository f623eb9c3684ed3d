/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the file of `ipcshim tune`: whole or not at all, so that a communicator that is
 * being made never reads half of it. See docs/tuning.md for the format. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/names.h"
#include "kernels/wire.h"
#include "shim/tune_file.h"
#include "tools/tool.h"
#include "tools/tune.h"
#include "tools/tune_fit.h"

static void write_table(FILE *out, const struct ips_tuned *tuned)
{
    fprintf(out, "\ntable = %u %s", tuned->ranks, ips_link_name((int)tuned->link));
    if (tuned->group)
        fprintf(out, " %u", tuned->group);
    fprintf(out, "\n");
    fprintf(out,
            "# bytes   kernel         channels  threads    us launched   us replayed\n");
    for (unsigned i = 0; i < tuned->count; i++) {
        const struct ips_tuned_row *row = &tuned->row[i];
        const struct ips_candidate *c = &row->candidate;
        if (row->nccl)
            fprintf(out, "%9llu  %-8s %-6s %6s %8s", (unsigned long long)row->bytes,
                    "nccl", "-", "-", "-");
        else
            fprintf(out, "%9llu  %-8s %-6s %6u %8u", (unsigned long long)row->bytes,
                    ips_algo_name(ips_variant_algo((int)c->variant)),
                    ips_proto_name(ips_variant_proto((int)c->variant)), c->channels,
                    c->threads);
        fprintf(out, "  %12.3f  %12.3f\n", row->times.us[IPS_MODE_EAGER],
                row->times.us[IPS_MODE_GRAPH]);
    }
}

static void write_head(FILE *out, const struct tune_page *page, int simulated)
{
    char date[32];
    const time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    fprintf(out, "# Written by `ipcshim tune` at %s. See docs/tuning.md.\n", date);
    if (simulated)
        fprintf(out, "# Simulated: these times say nothing of a GPU.\n");
    fprintf(out, "format = %d\nlibrary = " IPCSHIM_VERSION "\nwire = %d\ndriver = %d\n",
            IPS_TUNED_FORMAT, IPS_WIRE_VERSION, page->driver);
    for (unsigned i = 0; i < page->ngpus; i++)
        fprintf(out, "gpu = %s\n", page->gpu[i]);
}

/* The machine as the shim will describe it. */
static struct ips_tuned_machine
machine_of(const struct tune_page *page, char texts[IPS_TUNED_GPUS][IPS_TUNED_GPU_BYTES])
{
    struct ips_tuned_machine machine = {.library = IPCSHIM_VERSION,
                                        .wire = IPS_WIRE_VERSION,
                                        .driver = page->driver,
                                        .count = page->ngpus};
    for (unsigned i = 0; i < page->ngpus; i++) { /* bus id and UUID, without the name */
        const char *name = strchr(page->gpu[i], ' ');
        name = name ? strchr(name + 1, ' ') : NULL;
        snprintf(texts[i], IPS_TUNED_GPU_BYTES, "%.*s",
                 name ? (int)(name - page->gpu[i]) : IPS_TUNED_GPU_BYTES - 1,
                 page->gpu[i]);
        machine.gpu[i] = texts[i];
    }
    return machine;
}

static int is_new(const struct ips_tuned *const *tuned, unsigned count, unsigned ranks,
                  enum ips_link link)
{
    for (unsigned i = 0; i < count; i++)
        if (tuned[i]->ranks == ranks && tuned[i]->link == link)
            return 1;
    return 0;
}

/* The tables of the file that is there which were not measured anew. */
static void write_kept(FILE *out, const char *path, const struct tune_page *page,
                       const struct ips_tuned *const *tuned, unsigned count)
{
    char texts[IPS_TUNED_GPUS][IPS_TUNED_GPU_BYTES], reason[IPS_TUNED_REASON_BYTES];
    const struct ips_tuned_machine machine = machine_of(page, texts);
    struct ips_tuned *old = malloc(sizeof *old);
    enum ips_tuned_verdict verdict;
    for (unsigned ranks = IPS_MIN_RANKS; old && ranks <= IPS_MAX_RANKS; ranks++)
        for (int link = 0; link < IPS_LINKS; link++)
            if (!is_new(tuned, count, ranks, (enum ips_link)link) &&
                !ips_tune_file_read(path, &machine, ranks, (enum ips_link)link, old,
                                    &verdict, reason))
                write_table(out, old);
    free(old);
}

/* For whoever keeps policy/model.c: what it would have to say of this machine. */
static void write_fits(FILE *out, const struct ips_tuned *const *tuned, unsigned count)
{
    for (int link = 0; link < IPS_LINKS; link++) {
        struct ips_link_model m;
        const double off = tune_fit(tuned, count, (enum ips_link)link, &m);
        if (off <= 0)
            continue;
        fprintf(
            out,
            "# model of %s: {{%.2f, %.2f}, {%.2f, %.2f}, {%.2f, %.2f, %.2f}, "
            "{%.1f, %.1f, %.1f}, %.0f, %.0f, %.2f}, off by %.2f\n",
            ips_link_name(link), m.base[0], m.base[1], m.per_rank[0], m.per_rank[1],
            m.hop[0], m.hop[1], m.hop[2], m.block[0], m.block[1], m.block[2], m.link, m.total, m.spread, off);
    }
}

int tune_file_write(const char *path, const struct tune_page *page,
                    const struct ips_tuned *const *tuned, unsigned count, int simulated)
{
    char temporary[PATH_MAX];
    /* 0700, as the standard for caches has it. */
    FILE *out = tool_create(path, 0700, temporary, sizeof temporary);
    if (!out)
        return -1;
    write_head(out, page, simulated);
    write_fits(out, tuned, count);
    for (unsigned i = 0; i < count; i++)
        write_table(out, tuned[i]);
    write_kept(out, path, page, tuned, count);
    return tool_commit(out, path, temporary);
}
