/* SPDX-License-Identifier: Apache-2.0 */
/* How fast each link is while the GPUs work: an idle one is slow, so it is looked at now
 * and then, and the highest speed counts. */
#include <unistd.h>

#include "tools/doctor.h"
#include "tools/doctor_tree.h"

void doctor_look_loaded(struct doctor_view *view)
{
    static struct ips_topology now; /* too large for a stack; one thread looks */
    const struct ips_topology *t = &view->topology;
    const int sys = doctor_tree_open(view->root, "sys");
    if (sys < 0)
        return;
    ips_topology_read(sys, &now);
    close(sys);
    for (int at = -1; (at = doctor_next(t, at)) >= 0;)
        if (now.device[at].address == t->device[at].address &&
            now.device[at].now.mtps > view->loaded_mtps[at])
            view->loaded_mtps[at] = now.device[at].now.mtps;
}
