/* SPDX-License-Identifier: Apache-2.0 */
/* The check of what `ipcshim doctor --probe` has measured: now, or earlier as its file
 * says. A file that is no longer true of the machine proves nothing, neither good nor
 * bad. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim/kept_file.h"
#include "shim/settings.h"
#include "tools/doctor.h"
#include "tools/doctor_tree.h"

#define BROKEN_FIX                                                                     \
    "see what is said of ACS and the IOMMU: boot with iommu=pt, or switch ACS off in " \
    "the "                                                                             \
    "BIOS; then probe again. Until then programs need NCCL_P2P_DISABLE=1, which "      \
    "`ipcshim "                                                                        \
    "run` sets for NCCL"

void doctor_describe(const struct doctor_view *view, int cuda_version,
                     struct ips_verdicts_machine *ret)
{
    char driver[512] = "", boot[64] = "", cmdline[8192] = "";
    doctor_tree_text(view->root, "proc/driver/nvidia/version", driver, sizeof driver);
    doctor_tree_text(view->root, "proc/sys/kernel/random/boot_id", boot, sizeof boot);
    doctor_tree_text(view->root, "proc/cmdline", cmdline, sizeof cmdline);
    ips_verdicts_describe(driver, cuda_version, boot, cmdline, ret);
}

void doctor_note_acs(const struct doctor_view *view, struct ips_verdicts *ret)
{
    const struct ips_topology *t = &view->topology;
    unsigned char between[DOCTOR_DEVICES] = {0};
    doctor_mark_between(t, between);
    ret->bridges = 0;
    for (int at = IPS_TOPO_GPUS; at < IPS_TOPO_GPUS + (int)t->bridges; at++)
        if (between[at] && ret->bridges < IPS_VERDICTS_BRIDGES) {
            ips_address_text(t->device[at].address, ret->bridge[ret->bridges].address);
            ret->bridge[ret->bridges++].acs = view->pci[at].acs;
        }
}

static int find_device(const struct ips_topology *t, const char *name)
{
    ips_address address;
    if (ips_address_parse(name, &address))
        return -1;
    for (int at = -1; (at = doctor_next(t, at)) >= 0;)
        if (t->device[at].address == address)
            return at;
    return -1;
}

static const char *stale(const struct doctor_view *view, const struct ips_verdicts *v)
{
    struct ips_verdicts_machine now;
    doctor_describe(view, 0, &now);
    const char *why = ips_verdicts_stale(v, &now);
    for (unsigned i = 0; !why && view->topology.gpus && i < v->gpus; i++)
        if (find_device(&view->topology, v->gpu[i][0]) < 0)
            why = "the GPUs are others";
    for (unsigned i = 0; !why && i < v->bridges; i++) {
        const int at = find_device(&view->topology, v->bridge[i].address);
        if (at >= 0 && v->bridge[i].acs >= 0 && view->pci[at].acs >= 0 &&
            view->pci[at].acs != v->bridge[i].acs)
            why = "the ACS control of a bridge was changed since";
    }
    return why;
}

/* The text of the file: of this machine where its settings say, of a copy in the
 * machine's own place. To be freed. NULL: there is none, or, with a flaw, it is not to be
 * believed. */
static char *load(const struct doctor_view *view, int turn, char *ret_path,
                  size_t *ret_bytes, char *ret_flaw)
{
    int absent = 0;
    if (view->live && ips_settings_verdict_file(ips_settings()->verdict_file, turn, ret_path,
                                                PATH_MAX))
        return NULL;
    if (view->live) {
        char *text = ips_kept_file_load(ret_path, IPS_VERDICTS_BYTES, ret_bytes, &absent,
                                        ret_flaw, IPS_VERDICTS_REASON_BYTES);
        if (absent)
            ret_flaw[0] = 0;
        return text;
    }
    if (turn)
        return NULL;
    snprintf(ret_path, PATH_MAX, "%s", IPS_VERDICT_PLACE);
    char *text = malloc(IPS_VERDICTS_BYTES + 1);
    const ssize_t bytes = text ? doctor_tree_text(view->root, IPS_VERDICT_PLACE + 1, text,
                                                  IPS_VERDICTS_BYTES + 1)
                               : -1;
    if (bytes >= 0) {
        *ret_bytes = (size_t)bytes;
        return text;
    }
    free(text);
    return NULL;
}

/* The newest file that is true of the machine. Else what is wrong with those that are there
 * is found. Whether there is any. */
static int look(struct doctor_report *report, const struct doctor_view *view,
                struct ips_verdicts *ret, int *ret_true)
{
    static struct ips_verdicts one;
    char path[PATH_MAX], reason[IPS_VERDICTS_REASON_BYTES];
    char first[PATH_MAX] = "", why_first[IPS_VERDICTS_REASON_BYTES];
    *ret_true = 0;
    for (int turn = 0; turn < IPS_VERDICT_PLACES; turn++) {
        size_t bytes = 0;
        reason[0] = 0;
        char *text = load(view, turn, path, &bytes, reason);
        const char *why = reason;
        if (!text && !*reason)
            continue;
        if (text && !ips_verdicts_parse(text, bytes, &one, reason))
            why = stale(view, &one);
        free(text);
        if (!why && (!*ret_true || strcmp(one.made, ret->made) > 0)) {
            *ret = one;
            *ret_true = 1;
        }
        if (why && !*first) {
            snprintf(first, sizeof first, "%s", path);
            snprintf(why_first, sizeof why_first, "%s", why);
        }
    }
    if (!*ret_true && *first)
        doctor_find(report, DOCTOR_NOTE, "links-old", first,
                    "ipcshim doctor --probe, best as root, measures the links again",
                    "what was measured of the links there is ignored: %s", why_first);
    return *ret_true || *first;
}

/* One finding a pair: the first measurement that failed, and how many did. */
static void judge_pair(struct doctor_report *report, const struct ips_verdicts *v,
                       unsigned from, unsigned to)
{
    const struct ips_verdict_row *first = NULL;
    unsigned broken = 0, all = 0;
    char text[192], subject[112];
    for (unsigned i = 0; i < v->rows; i++) {
        if (v->row[i].from != from || v->row[i].to != to)
            continue;
        all++;
        broken += ips_verdict_broken(&v->row[i]) != 0;
        if (!first && ips_verdict_broken(&v->row[i]))
            first = &v->row[i];
    }
    if (!first)
        return;
    ips_verdict_text(v, first, text, sizeof text);
    snprintf(subject, sizeof subject, "%s > %s", v->gpu[from][0],
             to == IPS_VERDICTS_HOST ? "host" : v->gpu[to][0]);
    doctor_find(report, DOCTOR_FAULT, "link-broken", subject,
                to == IPS_VERDICTS_HOST
                    ? "see the GPU's own errors (dmesg: Xid) and those of its link"
                    : BROKEN_FIX,
                "%s; %u of %u measurements of this pair failed (%s)", text, broken, all,
                v->made);
}

void doctor_check_verdicts(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_verdicts *v = view->probed;
    struct ips_verdicts *kept = NULL;
    int is_true = 1;
    if (!v && view->topology.gpus < 2)
        return;
    if (!v) {
        kept = calloc(1, sizeof *kept);
        if (!kept || !look(report, view, kept, &is_true))
            doctor_not_seen(report, "whether what a GPU writes to another arrives there");
        v = kept && is_true ? kept : NULL;
    }
    for (unsigned from = 0; v && from < v->gpus; from++)
        for (unsigned to = 0; to <= IPS_VERDICTS_HOST; to++)
            judge_pair(report, v, from, to);
    free(kept);
}
