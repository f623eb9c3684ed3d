/* SPDX-License-Identifier: Apache-2.0 */
/* Checks of the way from each GPU to the CPU: width and speed of every link against what
 * its two ends allow, uplinks that several GPUs share, BAR 1 and the NUMA node. Width is
 * right also when idle; speed is not, since an idle GPU slows its link. */
#include <inttypes.h>
#include <stdio.h>

#include "tools/doctor.h"

#define MB ((uint64_t)1 << 20)
#define LEGACY_BAR1 (256 * MB) /* what a GPU shows without a resizable BAR */

/* A link by its lower end: as it is, and what each end allows (0: unknown). */
struct wire {
    struct ips_topo_link now, device, slot;
    int upper; /* index of the bridge above, or -1 */
};

static struct wire wire_of(const struct ips_topology *t, int at)
{
    struct wire wire = {.now = t->device[at].now,
                        .device = t->device[at].most,
                        .upper = t->device[at].parent};
    if (wire.upper >= 0) {
        wire.slot = t->device[wire.upper].most;
        if (!wire.now.width)
            wire.now = t->device[wire.upper].now;
    }
    return wire;
}

/* The highest speed that was seen of the link whose lower end is at `at`. */
static unsigned speed_seen(const struct doctor_view *view, int at,
                           const struct wire *wire)
{
    unsigned seen = view->loaded_mtps[at];
    if (wire->upper >= 0 && view->loaded_mtps[wire->upper] > seen)
        seen = view->loaded_mtps[wire->upper];
    return seen > wire->now.mtps ? seen : wire->now.mtps;
}

/* The lesser one that is known. */
static unsigned allowed(unsigned device, unsigned slot)
{
    return !slot || (device && device < slot) ? device : slot;
}

static struct ips_topo_link allowed_link(const struct wire *wire)
{
    return (struct ips_topo_link){allowed(wire->device.mtps, wire->slot.mtps),
                                  allowed(wire->device.width, wire->slot.width)};
}

static const char *upper_text(const struct ips_topology *t, const struct wire *wire,
                              char *text)
{
    if (wire->upper < 0)
        snprintf(text, IPS_ADDRESS_BYTES, "the host");
    else
        ips_address_text(t->device[wire->upper].address, text);
    return text;
}

static const char *role_of(int at)
{
    return at < IPS_TOPO_GPUS ? "GPU" : "switch uplink";
}

static const char *shared_text(const struct ips_topology *t, int at, char *text,
                               size_t room)
{
    unsigned below = doctor_bits(doctor_gpus_below(t, at));
    text[0] = '\0';
    if (at >= IPS_TOPO_GPUS)
        snprintf(text, room, ", shared by %u GPU%s", below, below == 1 ? "" : "s");
    return text;
}

static const char *speed_text(unsigned mtps, char *text)
{
    snprintf(text, 16, "%u.%u GT/s", mtps / 1000, mtps % 1000 / 100);
    return text;
}

void doctor_check_gpus(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    char text[IPS_ADDRESS_BYTES];
    if (!t->listed) {
        doctor_not_seen(report, "any PCI device");
        return;
    }
    if (!t->gpus)
        doctor_find(report, DOCTOR_NOTE, "no-gpu", "pci",
                    "in a virtual machine or container, hand the GPUs through to it",
                    "there is no GPU among the PCI devices");
    for (unsigned i = 0; i < t->gpus; i++) {
        ips_address_text(t->device[i].address, text);
        if (t->device[i].vendor && t->device[i].vendor != DOCTOR_NVIDIA)
            doctor_find(report, DOCTOR_NOTE, "not-nvidia", text, "none",
                        "not a GPU of NVIDIA (vendor %04x): NCCL and this library do not "
                        "use it",
                        t->device[i].vendor);
        if (t->device[i].host < 0)
            doctor_not_seen(report, "which bridges are above %s", text);
    }
    if (t->left_out)
        doctor_not_seen(report, "%u GPUs beyond the first %d", t->left_out,
                        IPS_TOPO_GPUS);
}

/* A card in a slot that has less than the card could use: the board's limit. A virtual
 * machine's slots say what its maker wrote. */
static void judge_slot(struct doctor_report *report, const struct doctor_view *view,
                       int at, const struct wire *wire)
{
    char own[IPS_ADDRESS_BYTES], upper[IPS_ADDRESS_BYTES], could[16], has[16];
    if (!wire->slot.width || !wire->device.width || view->host.hypervisor == 1 ||
        ips_link_rate(wire->slot) >= ips_link_rate(wire->device))
        return;
    doctor_find(report, DOCTOR_NOTE, "link-slot",
                ips_address_text(view->topology.device[at].address, own),
                "another slot, where the board has one that is wider or newer",
                "the %s could use %s x%u, the slot (%s) has %s x%u", role_of(at),
                speed_text(wire->device.mtps, could), wire->device.width,
                upper_text(&view->topology, wire, upper),
                speed_text(wire->slot.mtps, has), wire->slot.width);
}

void doctor_check_width(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (int at = -1; (at = doctor_next(t, at)) >= 0;) {
        char own[IPS_ADDRESS_BYTES], upper[IPS_ADDRESS_BYTES], shared[48];
        struct wire wire = wire_of(t, at);
        unsigned most = allowed_link(&wire).width;
        if (!doctor_is_lower_end(t, at))
            continue;
        ips_address_text(t->device[at].address, own);
        if (!wire.now.width || !most)
            doctor_not_seen(report, "the width of the link of %s%s", own,
                            wire.now.width ? " at most" : "");
        else if (wire.now.width < most)
            doctor_find(report, DOCTOR_WARNING, "link-width", own,
                        "reseat the card; check riser, cable and power; look for "
                        "bifurcation of the slot in the BIOS, and dirt on the contacts",
                        "%s: x%u of x%u lanes to %s%s%s", role_of(at), wire.now.width,
                        most, upper_text(t, &wire, upper),
                        shared_text(t, at, shared, sizeof shared),
                        wire.slot.width ? "" : " (what the slot allows is not known)");
        judge_slot(report, view, at, &wire);
    }
}

void doctor_check_speed(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (int at = -1; (at = doctor_next(t, at)) >= 0;) {
        char own[IPS_ADDRESS_BYTES], upper[IPS_ADDRESS_BYTES], now[16], most[16];
        struct wire wire = wire_of(t, at);
        unsigned limit = allowed_link(&wire).mtps, seen = speed_seen(view, at, &wire);
        if (!doctor_is_lower_end(t, at))
            continue;
        ips_address_text(t->device[at].address, own);
        speed_text(seen, now);
        speed_text(limit, most);
        upper_text(t, &wire, upper);
        if (!seen || !limit)
            doctor_not_seen(report, "the speed of the link of %s%s", own,
                            seen ? " at most" : "");
        else if (seen < limit && at < IPS_TOPO_GPUS && view->loaded >> at & 1)
            doctor_find(
                report, DOCTOR_WARNING, "link-speed", own,
                "set the slot's speed in the BIOS to the highest, not Auto; reseat "
                "the card; check riser and cable, and the error counters below",
                "GPU: %s of %s to %s, also while it copied", now, most, upper);
        else if (seen < limit && at < IPS_TOPO_GPUS)
            doctor_find(report, DOCTOR_NOTE, "link-idle", own,
                        "look while the GPUs work (--probe makes them, --watch waits for "
                        "them): only then is it a finding",
                        "GPU: %s of %s; an idle GPU slows its link, so this is to be "
                        "judged under load",
                        now, most);
        else if (seen < limit)
            doctor_find(report, DOCTOR_WARNING, "uplink-speed", own,
                        "set the slot's speed in the BIOS to the highest, not Auto; "
                        "check riser and cable, and the error counters below",
                        "switch uplink: %s of %s to %s, and switches seldom slow down "
                        "when idle",
                        now, most, upper);
    }
}

/* The greatest rate that a GPU below it can have on its own link. */
static unsigned rate_below(const struct ips_topology *t, uint64_t gpus)
{
    unsigned most = 0;
    for (unsigned gpu = 0; gpu < t->gpus; gpu++) {
        struct wire wire = wire_of(t, (int)gpu);
        unsigned rate = ips_link_rate(allowed_link(&wire));
        if (gpus >> gpu & 1 && rate > most)
            most = rate;
    }
    return most;
}

void doctor_check_uplink(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (int at = IPS_TOPO_GPUS; at < IPS_TOPO_GPUS + (int)t->bridges; at++) {
        char own[IPS_ADDRESS_BYTES], speed[16];
        struct wire wire = wire_of(t, at);
        struct ips_topo_link most = allowed_link(&wire);
        uint64_t gpus = doctor_gpus_below(t, at);
        unsigned count = doctor_bits(gpus), own_rate = rate_below(t, gpus);
        if (!doctor_is_lower_end(t, at))
            continue;
        ips_address_text(t->device[at].address, own);
        if (!ips_link_rate(most) || !own_rate)
            doctor_not_seen(report, "what the uplink %s or a GPU below it can carry",
                            own);
        else if (ips_link_rate(most) < own_rate)
            doctor_find(report, count > 1 ? DOCTOR_WARNING : DOCTOR_NOTE, "uplink-narrow",
                        own,
                        count > 1 ? "move the switch's uplink to a wider slot or cable, "
                                    "or GPUs to other slots; let ranks that talk most be "
                                    "under one switch"
                                  : "none is needed; expect the uplink's rate",
                        "the switch's uplink (%s x%u, %u MB/s) is narrower than the link "
                        "of one GPU below it (%u MB/s); %u GPU%s it",
                        speed_text(most.mtps, speed), most.width, ips_link_rate(most),
                        own_rate, count, count == 1 ? " uses" : "s share");
    }
}

void doctor_check_bar1(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    for (unsigned gpu = 0; gpu < t->gpus; gpu++) {
        char own[IPS_ADDRESS_BYTES];
        uint64_t bytes = view->pci[gpu].bar1_bytes;
        ips_address_text(t->device[gpu].address, own);
        if (!bytes)
            doctor_not_seen(report, "the size of BAR 1 of %s", own);
        else if (bytes <= LEGACY_BAR1)
            doctor_find(
                report, DOCTOR_NOTE, "bar1-small", own,
                "switch on Above 4G Decoding and Resizable BAR in the BIOS, where "
                "the GPU knows it",
                "BAR 1 shows %" PRIu64 " MB: peer-to-peer through BAR 1 needs "
                "all of the GPU's memory there",
                bytes / MB);
    }
}

void doctor_check_numa(struct doctor_report *report, const struct doctor_view *view)
{
    const struct ips_topology *t = &view->topology;
    const struct doctor_host *host = &view->host;
    int several = host->nodes > 1 || host->sockets > 1;
    for (unsigned gpu = 0; gpu < t->gpus; gpu++) {
        char own[IPS_ADDRESS_BYTES];
        if (t->device[gpu].numa >= 0)
            continue;
        ips_address_text(t->device[gpu].address, own);
        if (several)
            doctor_find(report, DOCTOR_WARNING, "numa-unknown", own,
                        "update the BIOS, and look for NUMA or SRAT settings there; give "
                        "a virtual machine a NUMA topology",
                        "its NUMA node is unknown on a machine of %d sockets and %d "
                        "nodes: the ring and host memory cannot be placed near it",
                        host->sockets > 0 ? host->sockets : 1,
                        host->nodes > 0 ? host->nodes : 1);
        else if (host->nodes < 0 && host->sockets < 0)
            doctor_not_seen(report, "the NUMA node of %s, and how many there are", own);
    }
}
