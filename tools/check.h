/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim check, in four steps: collect what is known of each process (check_watch.c from
 * the auditor's notes, check_pid.c from /proc), read what the shim traced
 * (check_trace.c), judge (check_preload.c, check_judge.c), print (check_print.c). All
 * memory lives until the command ends. */
#ifndef IPS_TOOLS_CHECK_H
#define IPS_TOOLS_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* What one ELF file says of itself. */
struct check_elf {
    int readable;     /* a 64-bit ELF file of this machine; else all is zero */
    int is_static;    /* a program without a loader */
    int is_shim;      /* defines ipcshimGetInfo */
    int exports_nccl; /* defines ncclAllReduce; so does the shim */
    int imports_nccl; /* leaves some nccl name undefined */
    char *soname;     /* or NULL */
    char **needed;    /* NULL-terminated, or NULL */
    char **names;     /* the nccl names that it defines; likewise */
};

struct check_object {
    const char *path;
    long space; /* 0, or the number of a dlmopen namespace */
    int global; /* loaded at start, so in the global scope */
    const struct check_elf *elf;
};

/* An nccl name that the loader bound for `from` to the one in `to`. */
struct check_bind {
    const char *name, *from, *to;
    int by_dlsym;
};

/* The AllReduce calls of a process, as the shim traced them. */
struct check_calls {
    int known; /* there is a trace */
    uint64_t engine, nccl, others;
    uint64_t comms, comms_served;
    char nccl_path[256];   /* the library behind the shim; "" none */
    char comm_reason[256]; /* why NCCL serves a communicator; "" none does */
    char call_reason[256]; /* why a call of a served one went to NCCL */
};

struct check_process {
    int pid;
    const char *program;
    const char *root; /* in front of paths: "", or "/proc/PID/root" */
    int watched;      /* binds are known */
    int forked_from;  /* the parent, whose objects and environment it has; 0: executed */
    char **environment;           /* NULL-terminated */
    struct check_object *objects; /* in load order */
    size_t nobjects;
    struct check_bind *binds;
    size_t nbinds;
    struct check_calls calls;
};

struct check_finding {
    const char *id;
    int fix; /* 1: something to fix, 0: only worth knowing */
    int pid; /* 0: no one process */
    char *text, *remedy;
};

struct check_report {
    struct check_process *processes;
    size_t nprocesses;
    struct check_finding *findings;
    size_t nfindings;
    const char *shim; /* path of the library that belongs to this command, or NULL */
};

/* check_elf.c: cached by path; never NULL. */
const struct check_elf *check_elf_of(const char *root, const char *path);
/* Whether the file has NCCL's code in it, exported or not. */
int check_elf_holds_nccl(const char *root, const char *path);
int check_elf_defines(const struct check_elf *elf, const char *name);
int check_same_file(const char *root, const char *a, const char *b);

/* check_watch.c: runs the program under the auditor, its output on stderr, and collects
 * its processes; its exit status (128 + signal), or -1 after printing. */
int check_watch(struct check_report *report, char **program);
/* check_pid.c: 0, or -1 after printing. */
int check_pid(struct check_report *report, int pid);
/* check_trace.c: adds what the file has of that process. */
void check_trace(struct check_calls *calls, const char *path, int pid);

/* check_preload.c: the environment alone. */
void check_preload(struct check_report *report, const struct check_process *process);
/* check_judge.c: what happened. */
void check_judge(struct check_report *report);

/* check_store.c */
struct check_process *check_add_process(struct check_report *report, int pid);
void check_add_object(struct check_process *process, const char *path, long space,
                      int global);
void check_add_bind(struct check_process *process, struct check_bind bind);
/* Once for each text. The remedy is one line, what to do. */
void check_add_finding(struct check_report *report, int fix, const char *id, int pid,
                       char *text, char *remedy);
char *check_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Value in the process's environment; NULL when unset or empty. */
const char *check_variable(const struct check_process *process, const char *name);
/* Whether NCCL matters to this process at all. */
int check_uses_nccl(const struct check_process *process);
/* The object that the global scope takes ncclAllReduce from, or NULL. */
const struct check_object *check_global(const struct check_process *process);
/* The path variables of the programs that load NCCL by path; NULL-terminated. */
extern const char *const check_path_variables[];

/* check_print.c */
void check_print(const struct check_report *report, int json);

#endif
