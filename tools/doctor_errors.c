/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the error counters (Advanced Error Reporting) of every device on the way of a
 * GPU: since the start of the machine, and between two readings. */
#include <inttypes.h>

#include "tools/doctor.h"

/* Corrected errors since the start of the machine that are more than a few retries. */
#define MANY_CORRECTED 1000

static const char *const kind_names[] = {"corrected", "uncorrected (nonfatal)", "fatal"};
static const char *const kind_ids[] = {"aer-corrected", "aer-nonfatal", "aer-fatal"};
static const char cable_fix[] =
    "reseat the card; shorten or replace riser and cable; lower the slot's speed in the "
    "BIOS by one generation to see whether it ends; `ipcshim doctor --watch 60` under "
    "load tells whether it goes on";
static const char fatal_fix[] =
    "read dmesg for \"AER\" and \"Surprise Down\"; reseat the card, check its power and "
    "riser; boot with pcie_port_pm=off where a GPU goes away when idle";

static enum doctor_severity severity_of(int kind, uint64_t count)
{
    if (kind != DOCTOR_AER_CORRECTABLE)
        return DOCTOR_FAULT;
    return count < MANY_CORRECTED ? DOCTOR_NOTE : DOCTOR_WARNING;
}

void doctor_check_aer(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (int at = -1; (at = doctor_next(t, at)) >= 0;) {
        const struct doctor_aer *aer = view->pci[at].aer;
        char own[IPS_ADDRESS_BYTES];
        ips_address_text(t->device[at].address, own);
        for (int kind = 0; kind < DOCTOR_AER_KINDS; kind++) {
            if (!aer[kind].count)
                continue;
            doctor_find(report, severity_of(kind, aer[kind].count), kind_ids[kind], own,
                        kind == DOCTOR_AER_CORRECTABLE ? cable_fix : fatal_fix,
                        "%" PRIu64 " %s errors on its link since it was started%s%s%s",
                        aer[kind].count, kind_names[kind], aer[kind].kinds[0] ? " (" : "",
                        aer[kind].kinds, aer[kind].kinds[0] ? ")" : "");
        }
        if (!aer[DOCTOR_AER_CORRECTABLE].known || !aer[DOCTOR_AER_NONFATAL].known ||
            !aer[DOCTOR_AER_FATAL].known)
            doctor_not_seen(report, "the error counters of %s", own);
    }
}

void doctor_check_growth(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    if (!view->watched_s && t->gpus)
        doctor_not_seen(report, "whether the error counters grow");
    for (int at = -1; view->watched_s && (at = doctor_next(t, at)) >= 0;) {
        char own[IPS_ADDRESS_BYTES];
        ips_address_text(t->device[at].address, own);
        for (int kind = 0; kind < DOCTOR_AER_KINDS; kind++)
            if (view->pci[at].grown[kind])
                doctor_find(report,
                            kind == DOCTOR_AER_CORRECTABLE ? DOCTOR_WARNING
                                                           : DOCTOR_FAULT,
                            "aer-growth", own,
                            kind == DOCTOR_AER_CORRECTABLE ? cable_fix : fatal_fix,
                            "%" PRIu64 " new %s errors within %u s",
                            view->pci[at].grown[kind], kind_names[kind], view->watched_s);
    }
}
