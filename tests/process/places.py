# SPDX-License-Identifier: Apache-2.0
"""Trees like /sys in which the stand-in's GPUs (0000:01:00.0, 0000:02:00.0 and so on) sit on
sockets as a test wants it. A process sees one by a mount of its own."""
import atexit
import functools
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "topology"))
import machine  # pylint: disable=wrong-import-position


def facts(socket_of, switches, uplink):
    """socket_of[i]: of the i-th GPU. The machine as a text of tests/topology/machines: a
    switch for each socket, with such a link upwards, or a root port for each GPU."""
    lines = [f"node {s} cpus {2 * s}-{2 * s + 1} socket {s}" for s in sorted(set(socket_of))]
    for socket in sorted(set(socket_of)):
        above = f"pci 0000:{16 * socket + 64:02x}:01.0 root numa {socket}"
        if switches:
            lines += [above, f"  pci 0000:{16 * socket + 65:02x}:00.0 class 0604 "
                             f"link {uplink} max {uplink}"]
        for gpu, its in enumerate(socket_of):
            if its != socket:
                continue
            if not switches:
                lines += [above.replace(":01.0", f":{gpu + 1:02x}.0")]
            lines += [f"{'  ' * (1 + switches)}gpu 0000:{gpu + 1:02x}:00.0 class 0300 "
                      "id 10de:2204 link 16.0x16 max 16.0x16"]
    return "\n".join(lines)


@functools.lru_cache
def tree(socket_of, switches, uplink="16.0x16"):
    folder = tempfile.mkdtemp(prefix="ips-sys-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    machine.Tree(machine.Machine(facts(socket_of, switches, uplink)), pathlib.Path(folder))
    return folder
