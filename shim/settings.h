/* SPDX-License-Identifier: Apache-2.0 */
/* Every IPCSHIM_* variable, in one table that parses and prints itself, and the few
 * NCCL_* variables that matter here: settings.c is the only file that reads the
 * environment. Nothing is read in a setuid process. Stands alone: the tools link it
 * without the shim. */
#ifndef IPS_SHIM_SETTINGS_H
#define IPS_SHIM_SETTINGS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "policy/policy.h"

struct ips_settings {
    int32_t enable;    /* 0: all calls go to NCCL */
    int32_t transport; /* enum ips_transport of core/engine.h */
    int32_t links_any; /* accept links that are not plain PCIe, or not known to be */
    int32_t summary;
    int32_t log_level;                 /* enum ips_log_level */
    uint32_t report_s, timeout_s;      /* of waits; timeout 0: none */
    uint64_t mem_max_bytes;            /* device memory for all engines of the process */
    const char *trace;                 /* NULL: none; may hold %p and %r */
    const char *nccl_lib;              /* NULL: search */
    const char *tune_file;             /* NULL: the usual place; "none" */
    const char *verdict_file;          /* likewise */
    int32_t hook_dlsym;                /* 0, 1 */
    struct ips_policy_settings policy; /* agreed between the ranks: rank 0's. The last */
};

/* What was wrong with the environment, for the caller to log. */
#define IPS_SETTINGS_PROBLEMS 8
struct ips_settings_problems {
    unsigned count; /* of those kept; more than IPS_SETTINGS_PROBLEMS are not */
    char text[IPS_SETTINGS_PROBLEMS][256];
};

/* Reads NAME=VALUE texts, ended by NULL; what is missing, unknown or invalid gets its
 * default. Texts are pointed to, not copied. */
void ips_settings_parse(char *const *environment, struct ips_settings *ret,
                        struct ips_settings_problems *ret_problems);

/* The process's own, read at the first call and constant from then on. Thread-safe. */
const struct ips_settings *ips_settings(void);
const struct ips_settings_problems *ips_settings_problems(void);

/* Which of the agreed settings differ between this rank's and rank 0's, as text: "" if
 * none. Gives the number of differences. */
unsigned ips_settings_differ(const struct ips_policy_settings *own,
                             const struct ips_policy_settings *agreed, char *ret_text,
                             size_t text_bytes);

/* The table: as aligned text with the paragraph under each name, or as Markdown. */
enum ips_settings_format { IPS_SETTINGS_TEXT, IPS_SETTINGS_MARKDOWN };
void ips_settings_print(FILE *out, enum ips_settings_format format);

/* IPCSHIM_NCCL_LIB as it is now (the library may be looked for before the first
 * communicator), or NULL. */
const char *ips_settings_nccl_lib(void);

/* Where the file of `ipcshim tune` lies: `named` (of struct ips_settings), or the usual place
 * for NULL. 0, or -1 when none is to be read or there is no such place. */
int ips_settings_tune_file(const char *named, char *ret, size_t room);

/* Where the file of `ipcshim doctor --probe` may lie: `named` alone, or for NULL, by `turn`,
 * this user's (0) and the machine's (1). 0, or -1 when there is no such place. */
int ips_settings_verdict_file(const char *named, int turn, char *ret, size_t room);
#define IPS_VERDICT_PLACES 2
#define IPS_VERDICT_PLACE "/var/cache/ipcshim/links" /* the machine's: root writes it */

/* IPCSHIM_HOOK_DLSYM as it is now. Cheap: asked at look-ups. */
int ips_settings_hook_dlsym(void);

/* NCCL_P2P_DISABLE=1, or an NCCL_P2P_LEVEL that allows no P2P over PCIe. */
int ips_settings_p2p_disabled(void);
/* NCCL_COMM_ID is set: all communicators have the same id. */
int ips_settings_constant_id(void);
/* NCCL_COMM_BLOCKING if it is 0 or 1, else `configured`. */
int ips_settings_blocking(int configured);

#endif
