/* SPDX-License-Identifier: Apache-2.0 */
/* What the probe found, as a table for people and as the file that the shim reads. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/links.h"
#include "tools/tool.h"

static const struct links_cell *cell_of(const struct links_page *page,
                                        const struct ips_verdict_row *row)
{
    return &page->cell[row->turn][row->method][row->from][row->to];
}

static void add_rows(const struct links_page *page, unsigned from, unsigned to,
                     struct ips_verdicts *ret)
{
    for (int turn = 0; turn < IPS_LINK_TURNS; turn++)
        for (int method = 0; method < IPS_LINK_METHODS; method++) {
            const struct links_cell *cell = &page->cell[turn][method][from][to];
            if (cell->state == LINKS_DONE)
                ret->row[ret->rows++] =
                    (struct ips_verdict_row){from,
                                             to,
                                             (enum ips_link_turn)turn,
                                             (enum ips_link_method)method,
                                             (enum ips_link_kind)cell->kind,
                                             cell->gbps};
        }
}

void links_collect(const struct links_page *page, struct ips_verdicts *ret)
{
    const time_t now = time(NULL);
    struct tm utc;
    memset(ret, 0, sizeof *ret);
    strftime(ret->made, sizeof ret->made, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    ret->gpus = page->gpus;
    memcpy(ret->gpu, page->gpu, sizeof ret->gpu);
    for (unsigned from = 0; from < page->gpus; from++)
        for (unsigned to = 0; to <= IPS_VERDICTS_HOST; to++)
            add_rows(page, from, to, ret);
}

/* --- the table --- */

static const char *cell_text(const struct links_cell *cell, char *text, size_t room)
{
    if (cell->state == LINKS_NONE)
        return "";
    if (cell->state != LINKS_DONE)
        return "?";
    if (cell->kind != IPS_LINK_OK)
        return ips_link_kind_name((int)cell->kind);
    snprintf(text, room, "%.1f", cell->gbps);
    return text;
}

static void print_pair(const struct links_page *page, unsigned from, unsigned to)
{
    printf("%-13s %-13s", page->gpu[from][0],
           to == IPS_VERDICTS_HOST ? "host memory" : page->gpu[to][0]);
    for (int method = 0; method < IPS_LINK_METHODS; method++)
        for (int turn = 0; turn < IPS_LINK_TURNS; turn++) {
            char text[16];
            printf(" %11s",
                   cell_text(&page->cell[turn][method][from][to], text, sizeof text));
        }
    printf("\n");
}

void links_print(const struct links_page *page, const struct ips_verdicts *verdicts)
{
    printf("GB/s between %u GPU%s, each pair alone, and all of the ring at once%s\n\n",
           page->gpus, page->gpus == 1 ? "" : "s",
           page->simulated ? " (stand-in: no figure of a GPU)" : "");
    printf("%-13s %-13s %23s %23s %23s\n", "of GPU", "memory of", "stores, ring",
           "loads, ring", "copies, ring");
    for (unsigned from = 0; from < page->gpus; from++)
        for (unsigned to = 0; to <= IPS_VERDICTS_HOST; to++)
            if (page->cell[IPS_LINK_ALONE][0][from][to].state != LINKS_NONE)
                print_pair(page, from, to);
    printf("\n");
    for (unsigned i = 0; i < verdicts->rows; i++) {
        char text[160];
        const struct ips_verdict_row *row = &verdicts->row[i];
        if (!ips_verdict_broken(row))
            continue;
        ips_verdict_text(verdicts, row, text, sizeof text);
        printf("%s: %s\n", text, cell_of(page, row)->detail);
    }
    if (page->gpus == 1)
        printf("One GPU: there is no pair to measure.\n");
    if (page->left_out)
        printf("%u more GPUs were left out.\n", page->left_out);
}

/* --- the file --- */

static void write_head(FILE *out, const struct ips_verdicts *v, int simulated)
{
    fprintf(out, "# Written by `ipcshim doctor --probe`. See docs/doctor.md.\n");
    if (simulated)
        fprintf(out, "# Simulated: these rates say nothing of a GPU.\n");
    fprintf(out,
            "format = %d\nmade = %s\ndriver = %s\nboot = %s\ncmdline = %016" PRIx64 "\n",
            IPS_VERDICTS_FORMAT, v->made, v->machine.driver, v->machine.boot,
            v->machine.cmdline);
    for (unsigned i = 0; i < v->gpus; i++)
        fprintf(out, "gpu = %s %s\n", v->gpu[i][0], v->gpu[i][1]);
    for (unsigned i = 0; i < v->bridges; i++)
        if (v->bridge[i].acs < 0)
            fprintf(out, "acs = %s unknown\n", v->bridge[i].address);
        else
            fprintf(out, "acs = %s %04x\n", v->bridge[i].address,
                    (unsigned)v->bridge[i].acs);
}

static void write_row(FILE *out, const struct ips_verdicts *v,
                      const struct ips_verdict_row *row, const char *detail)
{
    fprintf(out, "%-13s %-13s %-5s %-5s %-8s ", v->gpu[row->from][0],
            row->to == IPS_VERDICTS_HOST ? "host" : v->gpu[row->to][0],
            ips_link_turn_name((int)row->turn), ips_link_method_name((int)row->method),
            ips_link_kind_name((int)row->kind));
    if (row->gbps > 0)
        fprintf(out, "%8.3f", row->gbps);
    else
        fprintf(out, "%8s", "-");
    fprintf(out, "%s%s\n", *detail ? "  # " : "", detail);
}

int links_write(const char *path, const struct ips_verdicts *verdicts,
                const struct links_page *page)
{
    char temporary[PATH_MAX];
    FILE *out = tool_create(path, geteuid() ? 0700 : 0755, temporary, sizeof temporary);
    if (!out)
        return -1;
    write_head(out, verdicts, (int)page->simulated);
    fprintf(out, "\n# of GPU      memory of     turn  how   verdict      GB/s\n");
    for (unsigned i = 0; i < verdicts->rows; i++)
        write_row(out, verdicts, &verdicts->row[i],
                  cell_of(page, &verdicts->row[i])->detail);
    return tool_commit(out, path, temporary);
}
