/* SPDX-License-Identifier: Apache-2.0 */
/* Named one by one, the GPUs of a tree are read as they are with all of it: in any order, one
 * twice, and beside ones that are not there.
 *
 * usage: read-gpus ROOT */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "core/topology.h"

int main(int argc, char **argv)
{
    static struct ips_topology all, some;
    ips_address wanted[IPS_TOPO_GPUS + 3];
    unsigned count = 0;
    int root = argc == 2 ? open(argv[1], O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0)
        return 2;
    ips_topology_read(root, &all);
    wanted[count++] = IPS_TOPO_UNKNOWN;
    for (unsigned i = all.gpus; i-- > 0;)
        wanted[count++] = all.device[i].address;
    wanted[count++] = wanted[all.gpus / 2];
    wanted[count++] = IPS_ADDRESS(0x7fff, 0xff, 31, 7);
    ips_topology_read_gpus(root, wanted, count, &some);
    all.left_out = 0; /* who names its GPUs leaves none out */
    if (!memcmp(&all, &some, sizeof all))
        return 0;
    printf("%u of %u GPUs, %u of %u bridges, or not alike\n", some.gpus, all.gpus,
           some.bridges, all.bridges);
    return 1;
}
