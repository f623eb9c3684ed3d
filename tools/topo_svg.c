/* SPDX-License-Identifier: Apache-2.0 */
/* ipcshim topo as a picture. The GPUs stand side by side in the order of the ring, which
 * is one by place: whatever is above several of them is one box over their columns, a
 * link is a line straight up, and the ring goes from each GPU to the next one and back at
 * the end. */
#include <stdio.h>
#include <string.h>

#include "tools/topo_svg.h"

static const char style[] =
    "<style>text{font:12px sans-serif;fill:#222}.b{font-weight:bold}.s{font-size:11px}"
    ".m{text-anchor:middle}.dim{fill:#666}.warn{fill:#b00}"
    ".socket{fill:#f3f5f8;stroke:#8895a7}.numa{fill:#fff;stroke:#b9c2cf}"
    ".host{fill:#e3e8ef;stroke:#8895a7}.switch{fill:#fdf0d5;stroke:#c98a1b}"
    ".gpu{fill:#dff0de;stroke:#3f8f4f}.link{stroke:#555;stroke-width:2}"
    ".ring{fill:none;stroke-width:3}.nv{fill:none;stroke:#76b900;stroke-width:3}"
    ".group{fill:none;stroke:#6b4fa0;stroke-width:2}</style>\n";

static const struct ips_topo_device *device_of(const struct svg_picture *p,
                                               unsigned column)
{
    return &p->view->topology.device[p->view->ring[column]];
}

unsigned svg_middle(const struct svg_picture *p, unsigned first, unsigned last)
{
    return (p->left[first] + p->left[last] + COLUMN) / 2;
}

/* Text of others: no markup, and what is not printable ASCII as '?'. */
static void put_escaped(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '&')
            fputs("&amp;", out);
        else if (*text == '<')
            fputs("&lt;", out);
        else if (*text == '>')
            fputs("&gt;", out);
        else
            fputc(*text >= ' ' && *text < 0x7f ? *text : '?', out);
    }
}

void svg_text(const struct svg_picture *p, unsigned x, unsigned y, const char *class,
              const char *text)
{
    fprintf(p->out, "<text x=\"%u\" y=\"%u\" class=\"%s\">", x, y, class);
    put_escaped(p->out, text);
    fputs("</text>\n", p->out);
}

/* Over the columns from first to last, `inset` narrower on both sides. */
static void put_box(const struct svg_picture *p, unsigned first, unsigned last,
                    unsigned y, unsigned height, unsigned inset, const char *class)
{
    fprintf(
        p->out,
        "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" rx=\"4\" class=\"%s\"/>\n",
        p->left[first] + inset, y, p->left[last] + COLUMN - p->left[first] - 2 * inset,
        height, class);
}

static void find_path(struct svg_picture *p, unsigned column)
{
    const struct ips_topology *t = &p->view->topology;
    unsigned depth = 0;
    int up[IPS_TOPO_DEPTH];
    for (int at = device_of(p, column)->parent; at >= 0; at = t->device[at].parent)
        if (t->device[at].upstream == at)
            up[depth++] = at;
    for (unsigned level = 0; level < IPS_TOPO_DEPTH; level++)
        p->path[column][level] = level < depth ? up[depth - 1 - level] : -1;
    p->depth[column] = depth;
    if (depth > p->levels)
        p->levels = depth;
}

static int same_socket(const struct svg_picture *p, unsigned a, unsigned b)
{
    return ips_topology_socket(device_of(p, a)) == ips_topology_socket(device_of(p, b));
}

static int same_numa(const struct svg_picture *p, unsigned a, unsigned b)
{
    return same_socket(p, a, b) && device_of(p, a)->numa == device_of(p, b)->numa;
}

static int same_host(const struct svg_picture *p, unsigned a, unsigned b)
{
    return same_numa(p, a, b) && device_of(p, a)->host == device_of(p, b)->host;
}

static void lay_out(struct svg_picture *p)
{
    unsigned x = MARGIN + GAP / 2;
    for (unsigned i = 0; i < p->columns; i++) {
        find_path(p, i);
        if (i && !same_socket(p, i - 1, i))
            x += GAP;
        else if (i && !same_numa(p, i - 1, i))
            x += GAP / 2;
        p->left[i] = x;
        x += COLUMN;
    }
    p->width = x + GAP / 2 + MARGIN;
    if (p->width < 720)
        p->width = 720; /* the legend's */
    p->host_y = TITLE + 2 * FRAME + 6;
    p->switch_y = p->host_y + BOX + LINK;
    p->gpu_y = p->switch_y + p->levels * (BOX + LINK);
    p->ring_y = p->gpu_y + GPU_BOX + (p->view->group_size ? 46 : 20);
    p->nvlink_y = p->ring_y + (p->columns > 1 ? RING : 0);
}

static void put_frame(const struct svg_picture *p, unsigned first, unsigned last,
                      unsigned y, unsigned end_y, unsigned out, const char *class)
{
    fprintf(p->out,
            "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" rx=\"6\" "
            "class=\"%s\"/>\n",
            p->left[first] - out, y, p->left[last] + COLUMN - p->left[first] + 2 * out,
            end_y - y, class);
}

static void put_socket(const struct svg_picture *p, unsigned first, unsigned last)
{
    char text[32] = "socket ?";
    const int socket = device_of(p, first)->socket;
    if (socket >= 0)
        snprintf(text, sizeof text, "socket %d", socket);
    put_frame(p, first, last, TITLE, p->ring_y - 6, 12, "socket");
    svg_text(p, p->left[first] + 2, TITLE + 17, "b", text);
}

static void put_numa(const struct svg_picture *p, unsigned first, unsigned last)
{
    char text[32] = "NUMA node ?";
    const int numa = device_of(p, first)->numa;
    if (numa >= 0)
        snprintf(text, sizeof text, "NUMA node %d", numa);
    put_frame(p, first, last, TITLE + FRAME, p->gpu_y + GPU_BOX + 8, 6, "numa");
    svg_text(p, p->left[first] + 2, TITLE + FRAME + 17, "dim", text);
}

static void put_host(const struct svg_picture *p, unsigned first, unsigned last)
{
    char text[IPS_ADDRESS_BYTES] = "place not known";
    const ips_address host = device_of(p, first)->host;
    if (host >= 0)
        ips_host_text(host, text);
    put_box(p, first, last, p->host_y, BOX, 4, "host");
    svg_text(p, svg_middle(p, first, last), p->host_y + 17, "m", text);
}

static void put_switch(const struct svg_picture *p, unsigned first, unsigned last,
                       unsigned level)
{
    char address[IPS_ADDRESS_BYTES], text[IPS_ADDRESS_BYTES + 16];
    const struct ips_topo_device *d = &p->view->topology.device[p->path[first][level]];
    const unsigned y = p->switch_y + level * (BOX + LINK);
    snprintf(text, sizeof text, "%s%s", last > first ? "switch " : "",
             ips_address_text(d->address, address));
    put_box(p, first, last, y, BOX, 8, "switch");
    svg_text(p, svg_middle(p, first, last), y + 17, "m", text);
}

static int is_slower(struct ips_topo_link now, struct ips_topo_link most)
{
    return now.mtps && most.mtps && ips_link_rate(now) < ips_link_rate(most);
}

static void put_speed(const struct svg_picture *p, unsigned x, unsigned y,
                      const char *class, const char *before, struct ips_topo_link link)
{
    char text[48];
    snprintf(text, sizeof text, "%s%u.%u GT/s x%u", before, link.mtps / 1000,
             link.mtps % 1000 / 100, link.width);
    svg_text(p, x, y, class, text);
}

/* The link of a device, from its box at y up to the box above. What it does now is told
 * where that is less than it can: a narrow link never is in order, a slow one may be
 * idle. */
static void put_link(const struct svg_picture *p, const struct ips_topo_device *d,
                     unsigned x, unsigned y, unsigned from_y)
{
    const struct ips_topo_link best = d->most.mtps ? d->most : d->now;
    const unsigned text_y = y - LINK + 24;
    char text[32];
    fprintf(p->out, "<line x1=\"%u\" y1=\"%u\" x2=\"%u\" y2=\"%u\" class=\"link\"/>\n", x,
            from_y, x, y);
    fprintf(p->out,
            "<rect x=\"%u\" y=\"%u\" width=\"100\" height=\"29\" fill=\"#fff\"/>\n",
            x - 50, text_y - 12);
    if (!best.mtps) {
        svg_text(p, x, text_y + 7, "s m dim", "link not known");
        return;
    }
    put_speed(p, x, text_y, "s m", "", best);
    snprintf(text, sizeof text, "%u.%u GB/s", ips_link_rate(best) / 1000,
             ips_link_rate(best) % 1000 / 100);
    if (is_slower(d->now, d->most))
        put_speed(p, x, text_y + 14,
                  d->now.width < d->most.width ? "s m warn" : "s m dim", "now ", d->now);
    else
        svg_text(p, x, text_y + 14, "s m dim", text);
}

static void put_gpu(const struct svg_picture *p, unsigned column)
{
    char text[IPS_ADDRESS_BYTES], address[IPS_ADDRESS_BYTES];
    const struct ips_topo_device *d = device_of(p, column);
    const unsigned x = svg_middle(p, column, column), depth = p->depth[column];
    if (d->host >= 0)
        put_link(p, d, x, p->gpu_y,
                 depth ? p->switch_y + (depth - 1) * (BOX + LINK) + BOX
                       : p->host_y + BOX);
    put_box(p, column, column, p->gpu_y, GPU_BOX, 12, "gpu");
    snprintf(text, sizeof text, "GPU%u", p->view->ring[column]);
    svg_text(p, x, p->gpu_y + 20, "m b", text);
    svg_text(p, x, p->gpu_y + 37, "m s", ips_address_text(d->address, address));
}

/* The last of the columns from `first` on that are alike. */
static unsigned last_alike(const struct svg_picture *p, unsigned first,
                           int (*same)(const struct svg_picture *, unsigned, unsigned))
{
    unsigned last = first;
    while (last + 1 < p->columns && same(p, first, last + 1))
        last++;
    return last;
}

static void put_frames(const struct svg_picture *p)
{
    for (unsigned first = 0, last; first < p->columns; first = last + 1) {
        last = last_alike(p, first, same_socket);
        put_socket(p, first, last);
    }
    for (unsigned first = 0, last; first < p->columns; first = last + 1) {
        last = last_alike(p, first, same_numa);
        put_numa(p, first, last);
    }
    for (unsigned first = 0, last; first < p->columns; first = last + 1) {
        last = last_alike(p, first, same_host);
        put_host(p, first, last);
    }
}

static void put_switches(const struct svg_picture *p, unsigned level)
{
    const unsigned y = p->switch_y + level * (BOX + LINK);
    for (unsigned first = 0, last; first < p->columns; first = last + 1) {
        const int at = p->path[first][level];
        last = first;
        if (at < 0)
            continue;
        while (last + 1 < p->columns && p->path[last + 1][level] == at)
            last++;
        put_link(p, &p->view->topology.device[at], svg_middle(p, first, last), y,
                 y - LINK);
        put_switch(p, first, last, level);
    }
}

/* Of a long path the end, as far as the narrowest picture has room. */
static void put_title(const struct svg_picture *p, const char *root)
{
    const size_t length = strlen(root);
    fputs("<text x=\"24\" y=\"28\" class=\"b\">GPUs of ", p->out);
    if (length > MOST_TITLE)
        fputs("...", p->out);
    put_escaped(p->out, root + (length > MOST_TITLE ? length - MOST_TITLE : 0));
    fputs(p->columns ? "</text>\n" : ": none is seen</text>\n", p->out);
}

static void put_all(struct svg_picture *p, const char *root)
{
    put_title(p, root);
    put_frames(p);
    for (unsigned level = 0; level < p->levels; level++)
        put_switches(p, level);
    for (unsigned i = 0; i < p->columns; i++)
        put_gpu(p, i);
    svg_put_below(p);
}

void topo_print_svg(FILE *out, const struct topo_view *view, const char *root)
{
    struct svg_picture p = {.out = out, .view = view, .columns = view->topology.gpus};
    lay_out(&p);
    const unsigned height = p.nvlink_y + svg_nvlink_height(&view->topology) + LEGEND;
    fprintf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" width=\"%u\" "
        "height=\"%u\">\n%s<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
        p.width, height, p.width, height, style);
    put_all(&p, root);
    fputs("</svg>\n", out);
}
