/* SPDX-License-Identifier: Apache-2.0 */
/* What `ipcshim doctor --probe` has found of the links between a machine's GPUs, as text
 * and as a table. The text is a file that people may read (docs/doctor.md); whatever it
 * holds, reading it is bounded. No I/O, but what whoever has the text passes. */
#ifndef IPS_POLICY_VERDICTS_H
#define IPS_POLICY_VERDICTS_H

#include <stddef.h>
#include <stdint.h>

#define IPS_VERDICTS_FORMAT 1
#define IPS_VERDICTS_BYTES (1 << 20) /* longest text */
#define IPS_VERDICTS_GPUS 16
#define IPS_VERDICTS_HOST IPS_VERDICTS_GPUS /* in place of a GPU: host memory */
#define IPS_VERDICTS_BRIDGES 128
#define IPS_VERDICTS_REASON_BYTES 160

/* How one GPU acts on the memory of another, or of the host. */
enum ips_link_method {
    IPS_LINK_STORES, /* of its multiprocessors */
    IPS_LINK_LOADS,
    IPS_LINK_COPIES, /* of its copy engine */
    IPS_LINK_METHODS
};

/* One pair alone, or each GPU to the next in a ring at the same time. */
enum ips_link_turn { IPS_LINK_ALONE, IPS_LINK_RING, IPS_LINK_TURNS };

enum ips_link_kind {
    IPS_LINK_OK,
    IPS_LINK_DROPS,       /* nothing arrives, or not all */
    IPS_LINK_MIRRORS,     /* it arrives somewhere else */
    IPS_LINK_CORRUPTS,    /* it arrives changed */
    IPS_LINK_LATE,        /* it arrives after the deadline */
    IPS_LINK_FAILS,       /* the driver fails, or the probe did not end */
    IPS_LINK_UNSUPPORTED, /* the driver says that there is no way; no fault */
    IPS_LINK_KINDS
};

/* Words of the text. NULL when out of range. */
const char *ips_link_method_name(int method);
const char *ips_link_turn_name(int turn);
const char *ips_link_kind_name(int kind);

/* One measurement: what GPU `from` does to the memory of `to`. */
struct ips_verdict_row {
    unsigned from, to; /* index of a GPU; to: or IPS_VERDICTS_HOST */
    enum ips_link_turn turn;
    enum ips_link_method method;
    enum ips_link_kind kind;
    double gbps; /* 10^9 bytes a second; 0: none */
};

#define IPS_VERDICTS_ROWS \
    (IPS_LINK_TURNS * IPS_LINK_METHODS * IPS_VERDICTS_GPUS * (IPS_VERDICTS_GPUS + 1))

/* The machine of which it is true. */
struct ips_verdicts_machine {
    char driver[64];  /* version of the kernel module, or "cuda-13000" where that is
                         unknown */
    char boot[64];    /* the kernel's boot id; "": unknown */
    uint64_t cmdline; /* ips_verdicts_hash() of the kernel's command line */
};

struct ips_verdicts {
    struct ips_verdicts_machine machine;
    char made[32]; /* UTC, for people */
    unsigned gpus, rows, bridges;
    char gpu[IPS_VERDICTS_GPUS][2][48]; /* bus id as in sysfs, UUID */
    struct {
        char address[32];
        int acs;                    /* its ACS control register; -1: unknown */
    } bridge[IPS_VERDICTS_BRIDGES]; /* between two of the GPUs */
    struct ips_verdict_row row[IPS_VERDICTS_ROWS];
};

/* 0 and *ret, or -1 with the cause in ret_reason[IPS_VERDICTS_REASON_BYTES]. */
int ips_verdicts_parse(const char *text, size_t bytes, struct ips_verdicts *ret,
                       char *ret_reason);

/* Texts of /proc: driver/nvidia/version ("": there is none, then CUDA's version stands
 * for it, or nothing where that is 0), sys/kernel/random/boot_id, cmdline. */
void ips_verdicts_describe(const char *driver, int cuda_version, const char *boot,
                           const char *cmdline, struct ips_verdicts_machine *ret);

/* Why it says nothing of this machine as it is now, or NULL. An empty driver is not
 * compared: then it is not known here. Static text. */
const char *ips_verdicts_stale(const struct ips_verdicts *verdicts,
                               const struct ips_verdicts_machine *now);

/* Makes a bus id as the driver writes it one as in sysfs, in place. */
void ips_verdicts_bus_id(char *bus_id);

/* The GPU with this bus id, in either form, and UUID (NULL: any), or -1. */
int ips_verdicts_gpu(const struct ips_verdicts *verdicts, const char *bus_id,
                     const char *uuid);

/* Whether what a GPU does to the memory of another was measured, in all ways, and is
 * sound in all; or the first row that is not, in *ret_row. */
enum ips_measured { IPS_UNMEASURED, IPS_MEASURED_SOUND, IPS_MEASURED_BROKEN };
enum ips_measured ips_verdicts_pair(const struct ips_verdicts *verdicts, unsigned from,
                                    unsigned to, const struct ips_verdict_row **ret_row);

/* A row that is a fault. */
int ips_verdict_broken(const struct ips_verdict_row *row);
/* "stores of GPU 0000:01:00.0 to GPU 0000:02:00.0 are lost (drops)". */
void ips_verdict_text(const struct ips_verdicts *verdicts,
                      const struct ips_verdict_row *row, char *ret, size_t room);

#endif
