/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim doctor, in three steps: look (doctor_pci.c and doctor_host.c fill a view from
 * /sys and /proc, or a copy of them), judge (a table of checks, each a function from the
 * view to findings), print. What the tree does not say stays unknown, and a check that
 * needs it says so. All memory lives until the command ends. */
#ifndef IPS_TOOLS_DOCTOR_H
#define IPS_TOOLS_DOCTOR_H

#include <stddef.h>

#include "tools/doctor_view.h"

enum doctor_severity { DOCTOR_GOOD, DOCTOR_NOTE, DOCTOR_WARNING, DOCTOR_FAULT };

struct doctor_finding {
    const char *check, *id;
    enum doctor_severity severity;
    char *subject; /* a bus id, a path, a variable */
    char *text, *fix;
};

/* What a check could not see, and what would let it. */
struct doctor_unseen {
    const char *check;
    char *text;
};

struct doctor_report;

struct doctor_check {
    const char *id;
    const char *needs;
    void (*judge)(struct doctor_report *report, const struct doctor_view *view);
};

struct doctor_report {
    const struct doctor_check *check; /* the one that judges now */
    struct doctor_finding *findings;
    size_t nfindings;
    struct doctor_unseen *unseen;
    size_t nunseen;
};

/* The checks, in the order of the path from GPU to process. */
extern const struct doctor_check doctor_checks[];
extern const size_t doctor_nchecks;

/* doctor_report.c: subject and fix are copied; format makes the text. */
void doctor_find(struct doctor_report *report, enum doctor_severity severity,
                 const char *id, const char *subject, const char *fix, const char *format,
                 ...) __attribute__((format(printf, 6, 7)));
void doctor_not_seen(struct doctor_report *report, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* NULL: of all checks. */
enum doctor_severity doctor_worst(const struct doctor_report *report, const char *check);
/* Whether the check missed something. */
int doctor_missed(const struct doctor_report *report, const char *check);

/* The checks: doctor_links.c */
void doctor_check_gpus(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_width(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_speed(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_uplink(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_bar1(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_numa(struct doctor_report *report, const struct doctor_view *view);
/* doctor_errors.c */
void doctor_check_aer(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_growth(struct doctor_report *report, const struct doctor_view *view);
/* doctor_acs.c */
void doctor_check_acs(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_iommu(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_ordering(struct doctor_report *report, const struct doctor_view *view);
/* doctor_verdicts.c */
void doctor_check_verdicts(struct doctor_report *report, const struct doctor_view *view);
/* doctor_system.c */
void doctor_check_virtual(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_driver(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_params(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_shm(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_memlock(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_mps(struct doctor_report *report, const struct doctor_view *view);
void doctor_check_environment(struct doctor_report *report,
                              const struct doctor_view *view);

/* doctor_print.c */
void doctor_print(const struct doctor_report *report, const struct doctor_view *view,
                  int json);

#endif
