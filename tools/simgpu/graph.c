/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs. A launch puts the nodes into the stream's queue one after another, in a
 * topological order (see sim.h); those of a child graph, copied when it was added, in its place. Event
 * nodes bind at the launch, in host order: the record of a launch is what a later
 * cuStreamWaitEvent waits for, although the node may not have run yet. */
#include "tools/simgpu/sim.h"

#include <stdlib.h>

struct CUgraphExec_st {
    struct CUgraphExec_st *next;
    struct CUctx_st *context;
    struct sim_list *list;
    struct sim_marker *last; /* launches of one executable graph don't overlap */
};

/* Has no child graphs: their work is part of it. */
struct sim_list {
    int refs;
    size_t count;
    struct sim_work work[];
};

static struct CUgraph_st *graphs;
static struct CUgraphExec_st *execs;

void sim_list_unref(struct sim_list *list)
{
    if (!list || --list->refs)
        return;
    for (size_t i = 0; i < list->count; i++)
        sim_work_drop(&list->work[i]);
    free(list);
}

static void append(struct sim_list *list, const struct sim_work *work)
{
    list->work[list->count++] = *work;
    if (work->event)
        sim_event_ref(work->event);
}

static struct sim_list *list_create(const struct CUgraph_st *graph)
{
    size_t room = 0;
    for (struct CUgraphNode_st *n = graph->first; n; n = n->next)
        room += n->work.kind == SIM_CHILD ? n->work.child->count : 1;
    struct sim_list *list = calloc(1, sizeof *list + room * sizeof list->work[0]);
    if (!list)
        abort();
    list->refs = 1;
    for (struct CUgraphNode_st *n = graph->first; n; n = n->next) {
        const struct sim_list *child = n->work.child;
        if (!child)
            append(list, &n->work);
        for (size_t i = 0; child && i < child->count; i++)
            append(list, &child->work[i]);
    }
    return list;
}

struct CUgraph_st *sim_graph_create(void)
{
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (!graph)
        abort();
    graph->last = &graph->first;
    graph->next = graphs;
    graphs = graph;
    return graph;
}

struct CUgraph_st *sim_graph_find_locked(gpu_graph graph)
{
    for (struct CUgraph_st *g = graphs; g; g = g->next)
        if (g == graph)
            return g;
    return NULL;
}

void sim_graph_destroy(struct CUgraph_st *graph)
{
    struct CUgraph_st **link = &graphs;
    struct CUgraphNode_st *node;
    while (*link != graph)
        link = &(*link)->next;
    *link = graph->next;
    while ((node = graph->first)) {
        graph->first = node->next;
        sim_work_drop(&node->work);
        free(node->dependencies.item);
        free(node);
    }
    free(graph);
}

static int has_node(const struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    for (const struct CUgraphNode_st *n = graph->first; n; n = n->next)
        if (n == node)
            return 1;
    return 0;
}

struct CUgraphNode_st *sim_graph_add(struct CUgraph_st *graph,
                                     const gpu_node *dependencies, size_t count,
                                     struct sim_work *work)
{
    struct CUgraphNode_st *node = calloc(1, sizeof *node);
    int good = node != NULL;
    for (size_t i = 0; good && i < count; i++)
        good = has_node(graph, dependencies[i]);
    if (!good || sim_nodes_set(&node->dependencies, dependencies, count)) {
        free(node);
        sim_work_drop(work);
        return NULL;
    }
    node->index = graph->count++;
    node->work = *work;
    *graph->last = node;
    graph->last = &node->next;
    return node;
}

static void mark(unsigned char *reached, const struct sim_nodes *from)
{
    for (size_t i = 0; i < from->count; i++) {
        if (!reached[from->item[i]->index]) {
            reached[from->item[i]->index] = 1;
            mark(reached, &from->item[i]->dependencies);
        }
    }
}

int sim_graph_reaches(const struct CUgraph_st *graph, const struct sim_nodes *from,
                      const struct sim_nodes *of)
{
    unsigned char *reached = calloc(graph->count + 1, 1);
    int all = 1;
    if (!reached)
        abort();
    mark(reached, from);
    for (size_t i = 0; i < of->count; i++)
        all &= reached[of->item[i]->index];
    free(reached);
    return all;
}

int cuGraphAddEventRecordNode(gpu_node *node, gpu_graph handle,
                              const gpu_node *dependencies, size_t count,
                              gpu_event event_handle)
{
    int error = CUDA_ERROR_INVALID_VALUE;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUgraph_st *graph = sim_graph_find_locked(handle);
    struct CUevent_st *event = sim_event_find_locked(event_handle);
    if (node && graph && event && (dependencies || !count)) {
        struct sim_work work = {.kind = SIM_RECORD, .event = sim_event_ref(event)};
        *node = sim_graph_add(graph, dependencies, count, &work);
        error = *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuGraphAddChildGraphNode(gpu_node *node, gpu_graph handle,
                             const gpu_node *dependencies, size_t count,
                             gpu_graph child_handle)
{
    int error = CUDA_ERROR_INVALID_VALUE;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUgraph_st *graph = sim_graph_find_locked(handle);
    struct CUgraph_st *child = sim_graph_find_locked(child_handle);
    if (node && graph && child && (dependencies || !count)) {
        struct sim_work work = {.kind = SIM_CHILD, .child = list_create(child)};
        *node = sim_graph_add(graph, dependencies, count, &work);
        error = *node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&sim_lock);
    return error;
}

static int waits_for(const struct CUgraphNode_st *node, const struct CUgraphNode_st *other)
{
    for (size_t i = 0; i < node->dependencies.count; i++)
        if (node->dependencies.item[i] == other)
            return 1;
    return 0;
}

/* Whether any node waits for it. */
static int is_awaited(const struct CUgraph_st *graph, const struct CUgraphNode_st *node)
{
    for (const struct CUgraphNode_st *n = graph->first; n; n = n->next)
        if (waits_for(n, node))
            return 1;
    return 0;
}

static void move_to_end(struct CUgraph_st *graph, struct CUgraphNode_st *node)
{
    struct CUgraphNode_st **link = &graph->first;
    while (*link != node)
        link = &(*link)->next;
    *link = node->next;
    if (!*link)
        graph->last = link;
    node->next = NULL;
    *graph->last = node;
    graph->last = &node->next;
}

/* A node that others wait for would have to take them along: nobody needs that here. */
static int add_dependency(struct CUgraph_st *graph, gpu_node from, gpu_node to)
{
    if (!has_node(graph, from) || !has_node(graph, to) || from == to ||
        waits_for(to, from) || is_awaited(graph, to))
        return CUDA_ERROR_INVALID_VALUE;
    move_to_end(graph, to);
    return sim_nodes_join(&to->dependencies, &from, 1);
}

static int remove_dependency(struct CUgraph_st *graph, gpu_node from, gpu_node to)
{
    size_t at = 0;
    if (!has_node(graph, from) || !has_node(graph, to) || !waits_for(to, from))
        return CUDA_ERROR_INVALID_VALUE;
    while (to->dependencies.item[at] != from)
        at++;
    to->dependencies.item[at] = to->dependencies.item[--to->dependencies.count];
    return CUDA_SUCCESS;
}

typedef int change_dependency(struct CUgraph_st *graph, gpu_node from, gpu_node to);

static int change(gpu_graph handle, const gpu_node *from, const gpu_node *to, size_t count,
                  change_dependency *function)
{
    pthread_mutex_lock(&sim_lock);
    struct CUgraph_st *graph = sim_graph_find_locked(handle);
    int error = graph && ((from && to) || !count) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; !error && i < count; i++)
        error = function(graph, from[i], to[i]);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

int cuGraphAddDependencies(gpu_graph graph, const gpu_node *from, const gpu_node *to,
                           size_t count)
{
    SIM_ENTER();
    return change(graph, from, to, count, add_dependency);
}

int cuGraphRemoveDependencies(gpu_graph graph, const gpu_node *from, const gpu_node *to,
                              size_t count)
{
    SIM_ENTER();
    return change(graph, from, to, count, remove_dependency);
}

int cuGraphCreate(gpu_graph *graph, unsigned flags)
{
    SIM_ENTER();
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    *graph = sim_graph_create();
    pthread_mutex_unlock(&sim_lock);
    return CUDA_SUCCESS;
}

int cuGraphGetNodes(gpu_graph handle, gpu_node *nodes, size_t *count)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUgraph_st *graph = sim_graph_find_locked(handle);
    if (graph && count) {
        size_t at = 0;
        for (struct CUgraphNode_st *n = graph->first; nodes && n && at < *count;
             n = n->next)
            nodes[at++] = n;
        *count = nodes ? at : graph->count;
    }
    pthread_mutex_unlock(&sim_lock);
    return graph && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuGraphDestroy(gpu_graph handle)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUgraph_st *graph = sim_graph_find_locked(handle);
    if (graph)
        sim_graph_destroy(graph);
    pthread_mutex_unlock(&sim_lock);
    return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct CUgraphExec_st *exec_create(const struct CUgraph_st *graph)
{
    struct CUgraphExec_st *exec = calloc(1, sizeof *exec);
    if (!exec)
        abort();
    exec->list = list_create(graph);
    exec->context = sim_current();
    exec->next = execs;
    execs = exec;
    return exec;
}

int cuGraphInstantiateWithFlags(gpu_exec *exec, gpu_graph handle,
                                unsigned long long flags)
{
    SIM_ENTER();
    if (!sim_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!exec || flags > 15)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim_lock);
    struct CUgraph_st *graph = sim_graph_find_locked(handle);
    if (graph)
        *exec = exec_create(graph);
    pthread_mutex_unlock(&sim_lock);
    return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

int cuGraphInstantiate_v2(gpu_exec *exec, gpu_graph graph, gpu_node *error_node,
                          char *text, size_t length)
{
    if (error_node)
        *error_node = NULL;
    if (text && length)
        *text = 0;
    return cuGraphInstantiateWithFlags(exec, graph, 0);
}

static struct CUgraphExec_st **exec_link(gpu_exec handle)
{
    struct CUgraphExec_st **link = &execs;
    while (*link && *link != handle)
        link = &(*link)->next;
    return link;
}

/* The queued form of a node's work; 0 when there is nothing to do. */
static int bind_node(struct sim_work *work)
{
    struct CUevent_st *event = work->event;
    work->event = NULL;
    if (work->kind == SIM_RECORD) {
        sim_marker_unref(event->marker);
        event->marker = sim_marker_create();
        event->capture_id = 0;
        work->marker = sim_marker_ref(event->marker);
    } else if (work->kind == SIM_WAIT) {
        if (!event->marker)
            return 0;
        work->marker = sim_marker_ref(event->marker);
    }
    return 1;
}

static void launch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    sim_stream_order_locked(stream);
    if (exec->last) {
        struct sim_work wait = {.kind = SIM_WAIT, .marker = exec->last};
        sim_stream_push_locked(stream, &wait);
    }
    for (size_t i = 0; i < exec->list->count; i++) {
        struct sim_work work = exec->list->work[i];
        if (bind_node(&work))
            sim_stream_push_locked(stream, &work);
    }
    exec->last = sim_marker_create();
    struct sim_work end = {.kind = SIM_RECORD, .marker = sim_marker_ref(exec->last)};
    sim_stream_push_locked(stream, &end);
}

/* Into a capture CUDA launches no graph (seen with driver 580): it can be added as a child. */
int cuGraphLaunch(gpu_exec handle, gpu_stream stream_handle)
{
    int error;
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUgraphExec_st *exec = *exec_link(handle);
    struct CUstream_st *stream = sim_stream_find_locked(stream_handle, &error);
    if (!exec)
        error = CUDA_ERROR_INVALID_VALUE;
    if (!error)
        error = sim_implicit_locked(stream, 1);
    if (!error && stream->capture)
        error = sim_capture_refuse(stream);
    else if (!error)
        launch(exec, stream);
    pthread_mutex_unlock(&sim_lock);
    return error;
}

/* Queued launches hold their own copies. */
int cuGraphExecDestroy(gpu_exec handle)
{
    SIM_ENTER();
    pthread_mutex_lock(&sim_lock);
    struct CUgraphExec_st **link = exec_link(handle), *exec = *link;
    if (exec) {
        *link = exec->next;
        sim_list_unref(exec->list);
        sim_marker_unref(exec->last);
        free(exec);
    }
    pthread_mutex_unlock(&sim_lock);
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
