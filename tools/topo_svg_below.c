/* SPDX-License-Identifier: Apache-2.0 */
/* The picture's part below the GPUs: the ring from each to the next, its groups, NVLinks.
 */
#include <stdio.h>

#include "tools/topo_svg.h"

/* By what a hop costs. */
static const char *hop_color(const struct svg_picture *p, unsigned a, unsigned b)
{
    const int gpus[] = {(int)p->view->ring[a], (int)p->view->ring[b]};
    const unsigned ring[] = {0, 1};
    const struct ips_ring_cost cost = ips_ring_cost(&p->view->topology, gpus, ring, 2);
    return cost.socket ? "#c62828" : cost.cpu ? "#ef8c00" : "#1e6fd0";
}

/* From a column to another, `dip` below both. */
static void put_hop(const struct svg_picture *p, unsigned from, unsigned to, unsigned dip)
{
    const unsigned y = p->ring_y, end = svg_middle(p, to, to) - 8;
    const char *color = hop_color(p, from, to);
    fprintf(p->out,
            "<path d=\"M%u %uV%uH%uV%u\" class=\"ring\" stroke=\"%s\"/>\n"
            "<path d=\"M%u %ul-5 8h10z\" fill=\"%s\"/>\n",
            svg_middle(p, from, from) + 8, y, y + dip, end, y + 4, color, end, y - 2,
            color);
}

static void put_ring(const struct svg_picture *p)
{
    for (unsigned i = 0; i + 1 < p->columns; i++)
        put_hop(p, i, i + 1, 18);
    if (p->columns > 1)
        put_hop(p, p->columns - 1, 0, 42);
}

static void put_groups(const struct svg_picture *p)
{
    const unsigned size = p->view->group_size, y = p->gpu_y + GPU_BOX + 13;
    char text[48];
    snprintf(text, sizeof text, "group of %u", size);
    for (unsigned first = 0; size && first < p->columns; first += size) {
        const unsigned left = p->left[first] + 12,
                       right = p->left[first + size - 1] + COLUMN - 12;
        fprintf(p->out, "<path d=\"M%u %uv6H%uv-6\" class=\"group\"/>\n", left, y, right);
        svg_text(p, (left + right) / 2, y + 19, "m s", text);
    }
}

/* One line where all pairs have as many NVLinks, else one for each pair that has some. */
static unsigned count_lines(const struct ips_topology *t, int *ret_alike)
{
    unsigned pairs = 0;
    *ret_alike = 1;
    for (unsigned a = 0; a < t->gpus; a++)
        for (unsigned b = 0; b < a; b++) {
            pairs += t->nvlinks[a][b] != 0;
            *ret_alike &= t->nvlinks[a][b] == t->nvlinks[1][0];
        }
    return *ret_alike && pairs ? 1 : pairs;
}

static void put_nvlink(const struct svg_picture *p, unsigned first, unsigned last,
                       unsigned y, unsigned links, const char *between)
{
    char text[48];
    snprintf(text, sizeof text, "NV%u%s", links, between);
    fprintf(p->out, "<path d=\"M%u %uv6H%uv-6\" class=\"nv\"/>\n",
            svg_middle(p, first, first), y, svg_middle(p, last, last));
    svg_text(p, svg_middle(p, first, last), y + 19, "m s", text);
}

/* Returns the y below them. */
static unsigned put_nvlinks(const struct svg_picture *p)
{
    const struct ips_topology *t = &p->view->topology;
    int alike;
    unsigned y = p->nvlink_y;
    if (!count_lines(t, &alike))
        return y;
    if (alike) {
        put_nvlink(p, 0, p->columns - 1, y, t->nvlinks[1][0], " between all");
        return y + NVLINK;
    }
    for (unsigned a = 0; a < p->columns; a++)
        for (unsigned b = a + 1; b < p->columns; b++) {
            const unsigned links = t->nvlinks[p->view->ring[a]][p->view->ring[b]];
            if (links) {
                put_nvlink(p, a, b, y, links, "");
                y += NVLINK;
            }
        }
    return y;
}

static void put_legend(const struct svg_picture *p, unsigned y)
{
    static const struct {
        const char *color, *text;
    } hops[] = {{"#1e6fd0", "ring, within a switch"},
                {"#ef8c00", "through a CPU"},
                {"#c62828", "between sockets"}};
    unsigned x = MARGIN;
    for (size_t i = 0; i < sizeof hops / sizeof hops[0]; i++) {
        fprintf(p->out, "<path d=\"M%u %uh28\" class=\"ring\" stroke=\"%s\"/>\n", x, y,
                hops[i].color);
        svg_text(p, x + 34, y + 4, "s", hops[i].text);
        x += 190;
    }
    svg_text(p, MARGIN, y + 22, "s dim",
             "A link's figures are what it can do, in one direction; now: what it does.");
}

unsigned svg_nvlink_height(const struct ips_topology *t)
{
    int alike;
    return NVLINK * count_lines(t, &alike);
}

void svg_put_below(const struct svg_picture *p)
{
    put_ring(p);
    put_groups(p);
    put_legend(p, put_nvlinks(p) + 16);
}
