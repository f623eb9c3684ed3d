/* SPDX-License-Identifier: Apache-2.0 */
/* The shared-memory segment in which the ranks of one communicator meet, and the records
 * in it. What stands there was written by other processes: nothing is believed unchecked,
 * and sizes and positions never depend on it. */
#ifndef IPS_CORE_SEGMENT_H
#define IPS_CORE_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "core/engine.h"
#include "core/gpu.h"
#include "kernels/wire.h"

/* The stride and the first fields of a record stay the same in all versions, so that a
 * rank of another version is recognized. */
#define IPS_RECORD_BYTES 4096
#define IPS_RECORD_MAGIC 0x6d69687363706969ull
#define IPS_RECORD_VERSION 6u
#define IPS_VERSION_BYTES 16

/* How far a rank's set-up has come. Only ever grows; written by its rank. The ranks first
 * try CUDA IPC; each goes on to IPS_RECORD_PROBED also where it fails, and says so in
 * `refused` before. Then all look at all, and vote if nobody refuses; else they take host
 * memory, or decline. */
enum ips_record_state {
    IPS_RECORD_NONE,
    IPS_RECORD_PRESENT,     /* who: filled in before NCCL's init */
    IPS_RECORD_LOADING,     /* init is complete; the device code is being loaded */
    IPS_RECORD_LOADED,      /* its GPU is known */
    IPS_RECORD_EXPORTED,    /* mailbox allocated, cleared and exported */
    IPS_RECORD_OPENED,      /* the peers' mailboxes are mapped */
    IPS_RECORD_PROBED,      /* the probe over IPC is over */
    IPS_RECORD_HOST_READY,  /* mailbox in host memory allocated; no peer's is mapped by IPC */
    IPS_RECORD_HOST_OPENED, /* all mailboxes in host memory are mapped */
    IPS_RECORD_HOST_PROBED, /* the probe over host memory passed */
    IPS_RECORD_VOTED,       /* yes */
    IPS_RECORD_CLOSED,      /* the peers' mailboxes are no longer mapped, or never were */
};

/* Whether IPC works for a rank. */
enum ips_refusal {
    IPS_REFUSES_NOT,
    IPS_REFUSES_BY_CHOICE, /* the user's */
    IPS_REFUSES_BY_FAULT,
    IPS_REFUSES_AFTER_OTHERS, /* a fault that may be another's: its peers fell silent */
};

struct ips_record {
    uint64_t magic;
    uint32_t layout;       /* IPS_RECORD_VERSION */
    uint32_t wire_version; /* IPS_WIRE_VERSION */
    char version[IPS_VERSION_BYTES];

    uint32_t state;       /* enum ips_record_state; atomic */
    int32_t rank, nranks; /* -1 while unknown; known from IPS_RECORD_LOADING on */
    uint32_t key_bytes;
    unsigned char key[IPS_KEY_BYTES];
    uint32_t settings_bytes;
    unsigned char settings[IPS_SETTINGS_BYTES];

    int32_t pid; /* in its own namespace */
    uint32_t channels;
    uint64_t start_time;        /* of the process, clock ticks since boot */
    uint64_t pid_namespace;     /* inode */
    unsigned char process[16];  /* random, one per process */
    uint64_t probe_seed;        /* rank 0's are used */
    struct ips_guard_keys keys; /* likewise */

    /* From IPS_RECORD_LOADED on. */
    struct gpu_uuid uuid;
    char bus_id[32];
    int32_t ordinal;  /* of the device, meaningful in its own process */
    uint32_t multiprocessors;
    uint32_t refused; /* enum ips_refusal; final from IPS_RECORD_PROBED on */
    char refusal[IPS_REASON_BYTES]; /* why, with `refused` */

    /* From IPS_RECORD_EXPORTED on, if not refused. */
    uint32_t sound; /* atomic; rank 0's: 1, the links are known to be, and are not probed */
    uint64_t mailbox; /* address, meaningful in its own process */
    struct gpu_ipc_handle handle;

    /* Before this rank declines for all, or fails the agreed engine for all. */
    uint32_t fault; /* the reason is a fault, not a choice */
    char reason[IPS_REASON_BYTES];
    int32_t error; /* negative errno, of a failure */

    /* Of a rank with an engine; atomic. */
    uint32_t aborted; /* by its program */
    uint32_t beats;   /* grows several times a second while the process runs */

    uint32_t verify;     /* calls are to be verified; rank 0's is used */
    uint32_t can_verify; /* as far as this rank goes; all must */

    int32_t transport; /* enum ips_transport; rank 0's is used */
    /* Of rank 0, before IPS_RECORD_PROBED or IPS_RECORD_HOST_OPENED. */
    uint32_t link; /* enum ips_link */
    struct ips_lineup lineup;
    uint32_t plan_bytes;
    unsigned char plan[IPS_PLAN_BYTES];
};

IPS_STATIC_ASSERT(sizeof(struct ips_record) <= IPS_RECORD_BYTES, "a record fits");

/* The outcome is decided once, by whoever is first; all obey. */
enum {
    IPS_OUTCOME_OPEN = 0,
    IPS_OUTCOME_AGREED = 1,
    IPS_OUTCOME_DECLINED = 2 /* + slot */
};

/* A multiple of every page size. */
#define IPS_SEGMENT_PAGE ((size_t)64 << 10)

/* A slot is a place for a record; ranks take them as they come, since a rank that splits
 * a communicator does not know its new number yet. */
#define IPS_SEGMENT_SLOTS IPS_MAX_RANKS
struct ips_segment {
    char *base;
    int fd;                     /* to ask for others' locks, or -1; holds none itself */
    uint64_t inode;             /* what fd leads to, unless the program took it away */
    int slot;                   /* of the own record */
    int nranks, rank;           /* of the communicator, once they are known */
    int slot_of[IPS_MAX_RANKS]; /* rank -> slot, once all ranks are known */
    char name[64];              /* of the file, while it has one */
    struct ips_segment *next_named;
};

/* Opens or creates the segment of this key and takes a slot in it. 0 or a negative errno
 * (-EUSERS: more ranks than the engine serves), with the cause in
 * ret_reason[IPS_REASON_BYTES]. */
int ips_segment_open(struct ips_segment *segment, const void *key, size_t key_bytes,
                     char *ret_reason);
/* Removes the name; the mapping stays. Harmless when it is gone already. */
void ips_segment_unlink(struct ips_segment *segment);
/* Removes the names of all segments of this process that still have one. */
void ips_segment_unlink_all(void);
/* Removes the names that processes have left which were killed. */
void ips_segment_sweep_names(void);
void ips_segment_close(struct ips_segment *segment);

/* Memory of the file beyond records and control pages: all ranks that map it share it. The
 * mapping is the caller's, outlives the segment, and may be touched only where somebody
 * has reserved it. Both: 0 or a negative errno, with the cause in
 * ret_reason[IPS_REASON_BYTES]. */
int ips_segment_map_more(const struct ips_segment *segment, size_t bytes, char **ret_base,
                         char *ret_reason);
int ips_segment_reserve_more(const struct ips_segment *segment, size_t at, size_t bytes,
                             char *ret_reason);

/* The record in a slot, and that of a rank once slot_of is known. */
struct ips_record *ips_segment_slot(const struct ips_segment *segment, int slot);
struct ips_record *ips_segment_record(const struct ips_segment *segment, int rank);

/* The page that the device of the rank in the slot writes; see wire.h. Page-aligned, and
 * no less hostile than the records. */
struct ips_control *ips_segment_control(const struct ips_segment *segment, int slot);

uint32_t ips_record_state(const struct ips_record *record);
void ips_record_set_state(struct ips_record *record, enum ips_record_state state);

/* The outcome as it stands, and an attempt to decide it; both give the one that holds. */
uint32_t ips_segment_outcome(const struct ips_segment *segment);
uint32_t ips_segment_decide(const struct ips_segment *segment, uint32_t outcome);

/* The slot of the rank that was the first to fail the agreed engine, or -1. Its record
 * has the error and the reason. */
int ips_segment_failed(const struct ips_segment *segment);
/* Makes it this rank, whose record must have both. Whether it is. */
int ips_segment_fail(const struct ips_segment *segment);

/* The reason in the record, as one printable line. ret_reason[IPS_REASON_BYTES]. */
void ips_record_reason(const struct ips_record *record, char *ret_reason);
/* Likewise why it refuses IPC. */
void ips_record_refusal(const struct ips_record *record, char *ret_reason);

/* Fills in who this process is. */
void ips_record_identify(struct ips_record *record);
/* Whether the process that took the slot is known to have ended. */
int ips_segment_dead(const struct ips_segment *segment, int slot);
/* Whether this process wrote the record. */
int ips_record_own_process(const struct ips_record *record);

#endif
