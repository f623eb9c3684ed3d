/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of what becomes of a write from one GPU to another on its way: bridges that send
 * it up instead of across (ACS), an IOMMU that translates it there, and devices that may
 * reorder it. ACS redirect with a translating IOMMU drops such writes silently while the
 * driver reports peer-to-peer as in order. */
#include <stdio.h>
#include <string.h>

#include "tools/doctor.h"

#define RELAXED_ORDERING 0x10 /* Device Control (PCI Express Base 6.0, 7.5.3.4) */

/* Marks what is above `gpu` below the lowest bridge that is above both. */
static void mark_side(const struct ips_topology *t, unsigned gpu, unsigned other,
                      unsigned char *marks)
{
    for (int at = t->device[gpu].parent; at >= 0; at = t->device[at].parent) {
        if (doctor_gpus_below(t, at) >> other & 1)
            return;
        marks[at] = 1;
    }
}

void doctor_mark_between(const struct ips_topology *t, unsigned char *marks)
{
    for (unsigned a = 0; a < t->gpus; a++)
        for (unsigned b = 0; b < t->gpus; b++)
            if (a != b)
                mark_side(t, a, b, marks);
}

static const char *bits_text(int acs)
{
    if (!(acs & (DOCTOR_ACS_REQUEST | DOCTOR_ACS_COMPLETION)))
        return "egress control";
    if (!(acs & DOCTOR_ACS_COMPLETION))
        return "request redirect";
    return acs & DOCTOR_ACS_REQUEST ? "request and completion redirect"
                                    : "completion redirect";
}

/* How the worst off GPU below the bridge is treated. */
static enum doctor_iommu iommu_below(const struct doctor_view *view, int bridge)
{
    uint64_t gpus = doctor_gpus_below(&view->topology, bridge);
    enum doctor_iommu worst = DOCTOR_IOMMU_OFF;
    for (unsigned gpu = 0; gpu < view->topology.gpus; gpu++) {
        enum doctor_iommu its = doctor_iommu_of(view, (int)gpu);
        if (gpus >> gpu & 1 && its == DOCTOR_IOMMU_TRANSLATING)
            return its;
        if (gpus >> gpu & 1 && its == DOCTOR_IOMMU_UNKNOWN)
            worst = its;
    }
    return worst;
}

#define ACS_OFF                                                              \
    "switch ACS off in the BIOS, or until the next start: setpci -s BUS_ID " \
    "ECAP_ACS+6.w=0:2c"

static void judge_redirect(struct doctor_report *report, const struct doctor_view *view,
                           int at)
{
    char own[IPS_ADDRESS_BYTES];
    const struct ips_topo_device *d = &view->topology.device[at];
    enum doctor_iommu iommu = iommu_below(view, at);
    const char *role = d->upstream < 0 ? "root port" : "switch port";
    const char *bits = bits_text(view->pci[at].acs);
    ips_address_text(d->address, own);
    if (iommu == DOCTOR_IOMMU_TRANSLATING)
        doctor_find(report, DOCTOR_FAULT, "acs-iommu", own,
                    "boot with iommu=pt, so that the IOMMU passes the GPUs through; "
                    "or " ACS_OFF,
                    "%s with ACS on (%s) under an IOMMU that translates: writes between "
                    "GPUs may be dropped silently, and collectives hang, while the "
                    "driver reports peer-to-peer as in order",
                    role, bits);
    else if (d->upstream >= 0)
        doctor_find(report, DOCTOR_WARNING, "acs-redirect", own, ACS_OFF,
                    "%s with ACS on (%s): what could go across the switch goes up to the "
                    "CPU and back, at about half the rate",
                    role, bits);
    else
        doctor_find(report, iommu == DOCTOR_IOMMU_UNKNOWN ? DOCTOR_WARNING : DOCTOR_NOTE,
                    "acs-redirect", own, ACS_OFF, "%s with ACS on (%s); %s", role, bits,
                    iommu == DOCTOR_IOMMU_UNKNOWN
                        ? "whether the IOMMU translates was not seen"
                        : "the IOMMU does not translate, so nothing is lost");
}

void doctor_check_acs(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    unsigned char between[DOCTOR_DEVICES] = {0};
    doctor_mark_between(t, between);
    for (int at = IPS_TOPO_GPUS; at < IPS_TOPO_GPUS + (int)t->bridges; at++) {
        char own[IPS_ADDRESS_BYTES];
        if (!between[at])
            continue;
        if (view->pci[at].acs < 0)
            doctor_not_seen(report, "the ACS control of %s",
                            ips_address_text(t->device[at].address, own));
        else if (view->pci[at].acs & DOCTOR_ACS_REDIRECTS)
            judge_redirect(report, view, at);
    }
}

void doctor_check_iommu(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    const char *option = view->host.iommu_option;
    for (unsigned gpu = 0; t->gpus > 1 && gpu < t->gpus; gpu++) { /* one has no peer */
        char own[IPS_ADDRESS_BYTES];
        enum doctor_iommu iommu = doctor_iommu_of(view, (int)gpu);
        ips_address_text(t->device[gpu].address, own);
        if (iommu == DOCTOR_IOMMU_TRANSLATING)
            doctor_find(report, DOCTOR_WARNING, "iommu-translates", own,
                        "boot with iommu=pt, or switch the IOMMU off in the BIOS where "
                        "no virtual machine needs it",
                        "its IOMMU group is of type %s (kernel command line: %s): peer "
                        "traffic through the CPU is translated, slower, and lost where "
                        "ACS redirects it",
                        view->pci[gpu].iommu_type, *option ? option : "nothing");
        else if (iommu == DOCTOR_IOMMU_UNKNOWN)
            doctor_not_seen(report, "whether an IOMMU translates for %s", own);
    }
}

/* The engine's bulk protocol writes data, a fence, a flag. A driver that marks writes as
 * free to pass each other takes the order away on the bus. */
void doctor_check_ordering(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    if (view->host.relaxed_ordering < 0 && doctor_has_nvidia(t))
        doctor_not_seen(report, "the driver's parameter EnablePCIERelaxedOrderingMode");
    for (unsigned gpu = 0; gpu < t->gpus && view->host.relaxed_ordering > 0; gpu++) {
        char own[IPS_ADDRESS_BYTES];
        int control = view->pci[gpu].device_control;
        int may = control < 0 || control & RELAXED_ORDERING;
        doctor_find(report, may ? DOCTOR_WARNING : DOCTOR_NOTE, "relaxed-ordering",
                    ips_address_text(t->device[gpu].address, own),
                    "take NVreg_EnablePCIERelaxedOrderingMode=1 out of "
                    "/etc/modprobe.d and load the driver again",
                    "the driver marks writes with relaxed ordering, and the GPU's device "
                    "control %s: a flag may overtake the data before it",
                    control < 0 ? "was not seen"
                    : may       ? "lets it"
                                : "does not let it (so far no harm)");
    }
}
