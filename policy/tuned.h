/* SPDX-License-Identifier: Apache-2.0 */
/* What `ipcshim tune` has measured on a machine, as text and as a table. The text is a
 * file that people may read and write (docs/tuning.md); whatever it holds, reading it is
 * bounded. No I/O: whoever has the text passes it. */
#ifndef IPS_POLICY_TUNED_H
#define IPS_POLICY_TUNED_H

#include <stddef.h>
#include <stdint.h>

#include "policy/model.h"

#define IPS_TUNED_FORMAT 1
#define IPS_TUNED_BYTES (1 << 20) /* longest text */
#define IPS_TUNED_SIZES 20        /* most sizes of one table */
#define IPS_TUNED_ROWS 640        /* most measurements of one table */

/* One measurement. */
struct ips_tuned_row {
    uint64_t bytes;
    int32_t nccl; /* of NCCL; then the candidate is meaningless */
    struct ips_candidate candidate;
    struct ips_times times; /* us, all positive */
};

/* All measurements of as many ranks over one kind of link, by rising bytes. */
struct ips_tuned {
    unsigned ranks;
    enum ips_link link;
    unsigned group; /* that its ranks had, see ips_groups_valid(); 0: none */
    unsigned count;
    struct ips_tuned_row row[IPS_TUNED_ROWS];
};

/* The machine that a text must come from. All of it is compared. */
#define IPS_TUNED_GPUS 16
struct ips_tuned_machine {
    const char *library;             /* version of ipcshim */
    int wire, driver;                /* IPS_WIRE_VERSION; as cuDriverGetVersion says */
    unsigned count;                  /* of GPUs: those that are used */
    const char *gpu[IPS_TUNED_GPUS]; /* bus id and UUID as ips_tuned_gpu_text makes it */
};

/* "0000:3b:00.0 GPU-9a1e..." into ret[IPS_TUNED_GPU_BYTES]. uuid: 16 bytes. */
#define IPS_TUNED_GPU_BYTES 80
void ips_tuned_gpu_text(const char *bus_id, const unsigned char *uuid, char *ret);

enum ips_tuned_verdict {
    IPS_TUNED_OK,
    IPS_TUNED_FOREIGN, /* sound, but of another machine, driver or version */
    IPS_TUNED_ABSENT,  /* sound and of this machine, without this number of ranks or link
                        */
    IPS_TUNED_DAMAGED, /* not to be understood */
    IPS_TUNED_NO_FILE, /* see shim/tune_file.h */
};

/* Finds the table of `ranks` ranks over `link` in a text of `bytes` bytes. machine: NULL
 * for any. Only with IPS_TUNED_OK *ret is complete. ret_reason[IPS_TUNED_REASON_BYTES]
 * says what is wrong. */
#define IPS_TUNED_REASON_BYTES 160
enum ips_tuned_verdict ips_tuned_parse(const char *text, size_t bytes,
                                       const struct ips_tuned_machine *machine,
                                       unsigned ranks, enum ips_link link,
                                       struct ips_tuned *ret, char *ret_reason);

#endif
