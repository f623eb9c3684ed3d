/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the GPUs of a view and what is above them. */
#include <string.h>

#include "tools/doctor_view.h"

int doctor_next(const struct ips_topology *t, int before)
{
    int at = before + 1;
    if (at >= (int)t->gpus && at < IPS_TOPO_GPUS)
        at = IPS_TOPO_GPUS;
    return at < IPS_TOPO_GPUS + (int)t->bridges ? at : -1;
}

int doctor_is_lower_end(const struct ips_topology *t, int at)
{
    return at < IPS_TOPO_GPUS || t->device[at].upstream == at;
}

uint64_t doctor_gpus_below(const struct ips_topology *t, int at)
{
    uint64_t below = 0;
    for (unsigned gpu = 0; gpu < t->gpus; gpu++)
        for (int above = (int)gpu; above >= 0; above = t->device[above].parent)
            if (above == at)
                below |= UINT64_C(1) << gpu;
    return below;
}

unsigned doctor_bits(uint64_t bits)
{
    unsigned count = 0;
    for (; bits; bits &= bits - 1)
        count++;
    return count;
}

int doctor_has_nvidia(const struct ips_topology *t)
{
    unsigned i = 0;
    while (i < t->gpus && t->device[i].vendor && t->device[i].vendor != DOCTOR_NVIDIA)
        i++;
    return i < t->gpus;
}

/* What the options say where no group does. */
static enum doctor_iommu by_option(const struct doctor_host *host)
{
    const char *option = host->iommu_option;
    if (host->iommus == 0)
        return DOCTOR_IOMMU_OFF;
    if (strstr(option, "iommu=pt") || strstr(option, "iommu.passthrough=1"))
        return DOCTOR_IOMMU_IDENTITY;
    if (host->iommus < 0 && strstr(option, "iommu=off"))
        return DOCTOR_IOMMU_OFF;
    return DOCTOR_IOMMU_UNKNOWN;
}

enum doctor_iommu doctor_iommu_of(const struct doctor_view *view, int at)
{
    const char *type = view->pci[at].iommu_type;
    if (!strncmp(type, "DMA", 3)) /* DMA, DMA-FQ, DMA-SQ */
        return DOCTOR_IOMMU_TRANSLATING;
    if (!strcmp(type, "identity"))
        return DOCTOR_IOMMU_IDENTITY;
    return by_option(&view->host);
}
