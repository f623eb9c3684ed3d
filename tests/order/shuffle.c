/* SPDX-License-Identifier: Apache-2.0 */
/* Reaches into the stand-in's graph: a dependency that was left out shows only in an
 * order of the nodes that does not respect it. */
#include "tests/order/execute.h"
#include "tests/order/random.h"
#include "tools/simgpu/sim.h"

#define NODES_MAX 256

static int is_free(const struct CUgraphNode_st *node, const unsigned char *placed)
{
    for (size_t i = 0; i < node->dependencies.count; i++)
        if (!placed[node->dependencies.item[i]->index])
            return 0;
    return 1;
}

void graph_shuffle(gpu_graph graph, uint64_t seed)
{
    struct CUgraphNode_st *left[NODES_MAX], *node;
    unsigned char placed[NODES_MAX] = {0};
    unsigned count = 0;
    if (graph->count > NODES_MAX || random_below(&seed, 4) == 0)
        return;
    for (node = graph->first; node; node = node->next)
        left[count++] = node;
    graph->last = &graph->first;
    while (count) {
        unsigned at = random_below(&seed, count);
        node = left[at];
        if (!is_free(node, placed))
            continue;
        placed[node->index] = 1;
        left[at] = left[--count];
        *graph->last = node;
        graph->last = &node->next;
    }
    *graph->last = NULL;
}
