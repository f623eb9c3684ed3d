/* SPDX-License-Identifier: Apache-2.0 */
/* A picture of ipcshim topo in the making, as the files topo_svg*.c share it. All lengths
 * are pixels, y grows downwards. */
#ifndef IPS_TOOLS_TOPO_SVG_H
#define IPS_TOOLS_TOPO_SVG_H

#include "tools/topo.h"

enum {
    MARGIN = 24,
    COLUMN = 128,
    GAP = 36, /* between sockets, half of it between NUMA nodes */
    TITLE = 44,
    FRAME = 24, /* a frame's text above what is in it */
    BOX = 26,
    GPU_BOX = 48,
    LINK = 56,   /* the line between two boxes, with room for two lines of text */
    RING = 68,   /* all of it */
    NVLINK = 26, /* a line of them */
    LEGEND = 44,
    MOST_TITLE = 64 /* letters */
};

struct svg_picture {
    FILE *out;
    const struct topo_view *view;
    unsigned columns;
    unsigned left[IPS_TOPO_GPUS];            /* of each column */
    int path[IPS_TOPO_GPUS][IPS_TOPO_DEPTH]; /* its switches, outermost first, or -1 */
    unsigned depth[IPS_TOPO_GPUS], levels;   /* switches above a GPU; the most */
    unsigned host_y, switch_y, gpu_y, ring_y, nvlink_y, width;
};

/* The x amid the columns from first to last. */
unsigned svg_middle(const struct svg_picture *p, unsigned first, unsigned last);
/* Any text, as no markup. class: of the picture's style. */
void svg_text(const struct svg_picture *p, unsigned x, unsigned y, const char *class,
              const char *text);

/* What stands below the GPUs: the ring, its groups, NVLinks, and what the colors mean. */
void svg_put_below(const struct svg_picture *p);
unsigned svg_nvlink_height(const struct ips_topology *t);

#endif
