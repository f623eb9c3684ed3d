/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the stand-in driver share. One lock guards all objects; functions
 * named
 * *_locked, and all that take a struct, want it held. Errors are the driver's numbers. */
#ifndef SIM_SIM_H
#define SIM_SIM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/simgpu/cuda_api.h"
#include "tools/simgpu/lanes.h"

#define SIM_MAX_DEVICES 32
#define SIM_PARAM_BYTES 256

extern pthread_mutex_t sim_lock;
extern pthread_cond_t sim_done; /* some operation of some stream has ended */

struct sim_settings {
    int multiprocessors;
    int devices, driver_version, no_peer;
    size_t mem_bytes;
};
extern struct sim_settings sim_settings;

/* Every exported function begins with this: injected faults, the call log, cuInit, and
 * calls from host functions or after fork, which CUDA forbids. */
int sim_enter(const char *function);
#define SIM_ENTER()                       \
    do {                                  \
        int error_ = sim_enter(__func__); \
        if (error_)                       \
            return error_;                \
    } while (0)
/* Likewise for functions that work without cuInit. */
int sim_enter_early(const char *function);
extern __thread int sim_in_host_function;

/* Primary contexts, one per device (context.c). */
struct CUctx_st {
    int device;
    int retained;
    uint32_t peers; /* devices it may access */
    struct CUstream_st *legacy;
};
extern struct CUctx_st sim_contexts[SIM_MAX_DEVICES];
struct CUctx_st *sim_current(void); /* NULL: none */
void sim_context_wait_locked(struct CUctx_st *context);

/* Completion of one event record: pointed to by the event, by queued records and waits,
 * and by graphs' last launches. */
struct sim_marker {
    int refs, done;
    uint64_t time_ns;
};
struct sim_marker *sim_marker_create(void);
struct sim_marker *sim_marker_ref(struct sim_marker *marker);
void sim_marker_unref(struct sim_marker *marker); /* NULL is allowed */

/* A kernel of the host-compiled module; its one parameter is a struct of `bytes`. */
struct sim_kernel {
    const char *name;
    sim_lane_fn *fn;
    size_t bytes;
};
const struct sim_kernel *sim_kernel_find(const char *name);
void *sim_kernel_global(const char *name, size_t *ret_bytes);
/* For tests of the stand-in itself; the struct must stay. */
void sim_kernel_register(const struct sim_kernel *kernel);

/* What a stream does, or what a node of a graph will do. */
enum sim_kind {
    SIM_KERNEL,
    SIM_COPY,
    SIM_SET,
    SIM_HOST,
    SIM_RECORD,
    SIM_WAIT,
    SIM_CHILD
};
struct sim_work {
    enum sim_kind kind;
    const struct sim_kernel *kernel;
    unsigned blocks, threads;
    unsigned char parameters[SIM_PARAM_BYTES];
    void *to;
    const void *from;
    void *staged; /* owned copy of the source, or NULL */
    size_t bytes;
    unsigned char value;
    void (*host)(void *data);
    void *data;
    struct CUevent_st *event;  /* nodes: owned reference */
    struct sim_marker *marker; /* queued records and waits: owned reference */
    struct sim_list *child;    /* nodes that are child graphs: owned reference */
};

/* Streams (stream.c). */
struct sim_op;
struct CUstream_st {
    struct CUstream_st *next;
    struct CUctx_st *context;
    uint64_t serial; /* never used twice, unlike the address */
    int blocking, dying, started;
    pthread_cond_t wake;
    struct sim_op *head, **tail;
    uint64_t submitted, completed;
    struct sim_capture *capture; /* not NULL: being captured */
    struct sim_nodes {
        gpu_node *item;
        size_t count;
    } frontier;
    pthread_t owner; /* of a per-thread default stream */
    int per_thread;
};
extern struct CUstream_st *sim_streams;
/* The stream behind a handle, default streams made at need; NULL and an error otherwise.
 */
struct CUstream_st *sim_stream_find_locked(gpu_stream handle, int *ret_error);
/* Hands work to a stream: to its queue, or while it is captured to the graph. Owned parts
 * of work are consumed, also on failure. The first takes the lock itself. */
int sim_submit(gpu_stream handle, struct sim_work *work);
int sim_submit_locked(struct CUstream_st *stream, struct sim_work *work);
void sim_work_drop(struct sim_work *work);
/* The two halves of submitting to a stream that is not captured: what CUDA's legacy
 * stream implies comes first, then any number of operations. */
void sim_stream_order_locked(struct CUstream_st *stream);
void sim_stream_push_locked(struct CUstream_st *stream, const struct sim_work *work);
/* Waits for what was submitted so far; releases the lock meanwhile. */
void sim_stream_wait_locked(struct CUstream_st *stream);
/* 906 when an operation on this legacy stream would tie in with a capture, else 0. */
int sim_implicit_locked(const struct CUstream_st *stream, int invalidate);

/* Events (event.c). */
struct CUevent_st {
    struct CUevent_st *next;
    int refs, destroyed;
    unsigned flags;
    struct CUctx_st *context;
    struct sim_marker *marker; /* last record outside captures; NULL: never */
    uint64_t capture_id;       /* not 0: last recorded in this capture */
    struct sim_nodes captured;
};
struct CUevent_st *sim_event_find_locked(gpu_event handle);
struct CUevent_st *sim_event_ref(struct CUevent_st *event);
void sim_event_unref(struct CUevent_st *event);

/* Captures (capture.c). */
struct sim_capture {
    struct sim_capture *next;
    uint64_t id;
    int mode, invalid;
    pthread_t thread;
    struct CUstream_st *origin;
    struct CUgraph_st *graph;
};
struct sim_capture *sim_capture_find(uint64_t id);
int sim_capture_add(struct CUstream_st *stream, struct sim_work *work);
/* Invalidates the stream's capture; gives the error of the call that must not be made. */
int sim_capture_refuse(struct CUstream_st *stream);
/* cuStreamWaitEvent where a capture has a part in it: the stream is captured, or the
 * event was last recorded in a capture. */
int sim_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, int external);
void sim_capture_forget(struct CUstream_st *stream); /* the stream is destroyed */
/* 900, with the captures it breaks invalidated, when the thread may not make a
 * potentially unsafe call now, else 0. The first takes the lock itself. */
int sim_unsafe(void);
int sim_unsafe_locked(void);
int sim_nodes_set(struct sim_nodes *nodes, const gpu_node *item, size_t count);
int sim_nodes_join(struct sim_nodes *nodes, const gpu_node *item, size_t count);

/* Graphs (graph.c). Nodes are kept in a topological order: that of their making, but that
 * a node which is given a later one to wait for goes to the end. */
struct sim_list; /* a graph's work in that order, copied when a graph is made of it */
void sim_list_unref(struct sim_list *list); /* NULL is allowed */
struct CUgraphNode_st {
    struct CUgraphNode_st *next;
    size_t index;
    struct sim_work work;
    struct sim_nodes dependencies;
};
struct CUgraph_st {
    struct CUgraph_st *next;
    struct CUgraphNode_st *first, **last;
    size_t count;
};
struct CUgraph_st *sim_graph_create(void);
void sim_graph_destroy(struct CUgraph_st *graph);
struct CUgraph_st *sim_graph_find_locked(gpu_graph graph);
/* Consumes work. NULL when a dependency is not of this graph. */
struct CUgraphNode_st *sim_graph_add(struct CUgraph_st *graph,
                                     const gpu_node *dependencies, size_t count,
                                     struct sim_work *work);
/* Whether every node of `of` is, or comes before, one of `from`. */
int sim_graph_reaches(const struct CUgraph_st *graph, const struct sim_nodes *from,
                      const struct sim_nodes *of);

/* Memory (memory.c). */
enum sim_memory_kind { SIM_DEVICE, SIM_PINNED, SIM_IMPORTED, SIM_GLOBAL };
struct sim_memory {
    struct sim_memory *next;
    enum sim_memory_kind kind;
    unsigned char *base;
    size_t bytes; /* as asked for */
    size_t mapped;
    int device, fd, exported, opened;
    int owner; /* the device whose memory it is: of imported memory, the exporter's */
    unsigned char *shadow[SIM_MAX_DEVICES]; /* see links.c; NULL: none */
    uint64_t nonce;
};
extern struct sim_memory *sim_memories;
struct sim_memory *sim_memory_find_locked(const void *address, size_t bytes);
void sim_memory_add_locked(struct sim_memory *memory);
void sim_memory_remove_locked(struct sim_memory *memory);

/* Links (links.c). */
extern int simgpu_links; /* not 0: there are bad ones, so accesses are looked at */
extern __thread int sim_device_here; /* whose work this thread runs; -1: no device's */
void sim_links_read(const char *text);
/* What the thread has run has ended: what it stored and a link holds arrives. */
void sim_links_settle(void);
/* What a kernel stores or loads, before it does: whether that is done with, and where to
 * load from. bytes: at most 16. */
int simgpu_store(void *address, uint64_t low, uint64_t high, unsigned bytes);
const void *simgpu_load(const void *address);
/* Copies and fills where there are bad links. */
void sim_links_copy(void *to, const void *from, size_t bytes);
void sim_links_set(void *to, unsigned char value, size_t bytes);
/* New memory, of which fd is open (0, or -1), and memory that is about to go. */
int sim_links_map(struct sim_memory *m, int fd);
void sim_links_unmap_locked(struct sim_memory *m);

uint64_t sim_now_ns(void);

#endif
