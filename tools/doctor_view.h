/* SPDX-License-Identifier: Apache-2.0 */
/* What ipcshim doctor judges: a machine as its /sys and /proc show it, read once. What
 * they do not say is -1, 0 or "", as each field tells, and never guessed. */
#ifndef IPS_TOOLS_DOCTOR_VIEW_H
#define IPS_TOOLS_DOCTOR_VIEW_H

#include <stddef.h>
#include <stdint.h>

#include "core/topology.h"
#include "policy/verdicts.h"

#define DOCTOR_DEVICES (IPS_TOPO_GPUS + IPS_TOPO_BRIDGES)
#define DOCTOR_WORDS 128
#define DOCTOR_NVIDIA 0x10de

/* In the order of the files aer_dev_correctable, _nonfatal and _fatal. */
enum doctor_aer_kind {
    DOCTOR_AER_CORRECTABLE,
    DOCTOR_AER_NONFATAL,
    DOCTOR_AER_FATAL,
    DOCTOR_AER_KINDS
};

struct doctor_aer {
    int known;
    uint64_t count;
    char kinds[DOCTOR_WORDS]; /* "BadTLP 3, Timeout 1": those that are not zero */
};

enum doctor_iommu {
    DOCTOR_IOMMU_UNKNOWN,
    DOCTOR_IOMMU_OFF,
    DOCTOR_IOMMU_IDENTITY, /* on, and passes the device's addresses through */
    DOCTOR_IOMMU_TRANSLATING
};

/* Access Control Services, control register (PCI Express Base 6.0, 7.7.11.3). */
#define DOCTOR_ACS_REQUEST 0x04    /* redirects peer requests upstream */
#define DOCTOR_ACS_COMPLETION 0x08 /* and peer completions */
#define DOCTOR_ACS_EGRESS 0x20     /* blocks or redirects by a table */
#define DOCTOR_ACS_REDIRECTS \
    (DOCTOR_ACS_REQUEST | DOCTOR_ACS_COMPLETION | DOCTOR_ACS_EGRESS)

/* What one device's directory says beyond struct ips_topo_device. */
struct doctor_pci {
    struct doctor_aer aer[DOCTOR_AER_KINDS];
    uint64_t grown[DOCTOR_AER_KINDS]; /* errors between two readings */
    int acs;             /* control register; 0 where it has no ACS; -1: not seen */
    int device_control;  /* of the PCI Express capability; -1: not seen */
    uint64_t bar1_bytes; /* 0: unknown */
    char iommu_type[16]; /* "DMA-FQ", as the kernel calls it; "" unknown */
};

struct doctor_host {
    int nodes, sockets;         /* -1: not seen */
    int iommus;                 /* IOMMUs that the kernel drives; -1: not seen */
    char iommu_option[64];      /* what the kernel command line says of it; "" nothing */
    int hypervisor;             /* 1, 0; -1: not seen */
    char product[DOCTOR_WORDS]; /* of the DMI tables; "" unknown */
    int64_t shm_bytes, shm_free_bytes; /* of /dev/shm; -1: not seen */
    int64_t memlock_bytes;             /* -1: not seen; INT64_MAX: unlimited */
    int proc;                          /* there is a /proc at all */
    char driver[32];                   /* "580.82.07"; "" none, or not seen */
    int relaxed_ordering; /* parameter EnablePCIERelaxedOrderingMode; -1: not seen */
    char registry[DOCTOR_WORDS]; /* RegistryDwords; "" none */
    int params;                  /* the driver's parameters were seen */
    char **environment;          /* NULL-terminated; NULL: not seen */
    int mps;                     /* there is the control pipe of an MPS server */
};

struct doctor_view {
    int root;              /* descriptor */
    const char *root_path; /* in front of absolute paths: "" for this machine */
    int live;              /* this machine */
    unsigned watched_s; /* seconds between two readings of the error counters; 0: one */
    struct ips_topology topology;
    struct doctor_pci pci[DOCTOR_DEVICES]; /* by index of topology.device */
    unsigned loaded_mtps[DOCTOR_DEVICES];  /* highest speed of its link since; 0: not seen */
    uint64_t loaded; /* bits: GPUs that have worked meanwhile */
    struct doctor_host host;
    const struct ips_verdicts *probed; /* what was measured just now; NULL: nothing was */
};

/* doctor_pci.c, doctor_host.c */
void doctor_look_pci(struct doctor_view *view);
void doctor_look_host(struct doctor_view *view);
/* doctor_load.c: looks at the speed of the links again. */
void doctor_look_loaded(struct doctor_view *view);
/* Reads the error counters again. */
void doctor_look_grown(struct doctor_view *view);

/* doctor_path.c: the indexes of all GPUs and of the bridges above them, in turn: the
 * first with -1, then with the one before; -1 after the last. */
int doctor_next(const struct ips_topology *t, int before);
/* Whether the device is the lower end of a link: a GPU, or a switch's upstream port. */
int doctor_is_lower_end(const struct ips_topology *t, int at);
/* The GPUs at or below it, one bit each. */
uint64_t doctor_gpus_below(const struct ips_topology *t, int at);
unsigned doctor_bits(uint64_t bits);
/* Whether a GPU is NVIDIA's, or may be. */
int doctor_has_nvidia(const struct ips_topology *t);
/* doctor_acs.c: marks, in marks[DOCTOR_DEVICES], the bridges that a peer request enters from
 * below, over all pairs of GPUs. */
void doctor_mark_between(const struct ips_topology *t, unsigned char *marks);
/* doctor_verdicts.c: the machine as a file of verdicts says it, and into that file the ACS
 * control of the bridges between the GPUs. */
void doctor_describe(const struct doctor_view *view, int cuda_version,
                     struct ips_verdicts_machine *ret);
void doctor_note_acs(const struct doctor_view *view, struct ips_verdicts *ret);
/* How the IOMMU treats the device: by its group, else by the kernel's options. */
enum doctor_iommu doctor_iommu_of(const struct doctor_view *view, int at);

#endif
