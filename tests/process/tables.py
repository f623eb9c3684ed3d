# SPDX-License-Identifier: Apache-2.0
"""Tables as `ipcshim tune` writes them, for every machine, number of ranks and link: so that
a test says by size which kernel serves a call. IPCSHIM_MAX_BYTES says up to which size."""
import atexit
import os
import shutil
import tempfile

LINKS = ("same-gpu", "pcie", "nvlink", "host")
THREADS = {"LL": 256, "LL128": 256, "Simple": 512}
HOST_CHANNELS = 4  # most that there are in host memory
made = {}


def text(rows, nccl=(), ranks=range(2, 9), links=LINKS):
    """rows: (up to bytes, "ring LL", channels); nccl: (bytes, us) of NCCL's own."""
    lines = ["format = 1", "gpu = any"]
    for n in ranks:
        for link in links:
            lines.append(f"table = {n} {link}")
            table = [(size, f"{kernel} {min(channels, HOST_CHANNELS) if link == 'host' else channels}"
                            f" {THREADS[kernel.split()[1]]} 5 5")
                     for size, kernel, channels in rows]
            table += [(size, f"nccl - - - {us} {us}") for size, us in nccl]
            lines += [f"{size} {rest}" for size, rest in sorted(table)]
    return "\n".join(lines) + "\n"


def directory():
    if "directory" not in made:
        made["directory"] = tempfile.mkdtemp(prefix="ips-tables-")
        atexit.register(shutil.rmtree, made["directory"], ignore_errors=True)
    return made["directory"]


def file(content):
    """A file with this text, which lives as long as this process. Its path."""
    if content not in made:
        made[content] = os.path.join(directory(), str(len(made)))
        with open(made[content], "w", encoding="utf-8") as out:
            out.write(content)
    return made[content]


def mixed(ll, ll128, channels=4):
    """The environment in which these protocols serve likewise, each of LL and LL128 in turns by
    one-shot, two-shot and ring: so that calls of all kernels follow each other."""
    def turns(low, high, protocol):
        return [(round(low * (high / low) ** (part / 3)), f"{algorithm} {protocol}", channels)
                for part, algorithm in ((1, "oneshot"), (2, "twoshot"), (3, "ring"))]
    rows = turns(8, ll, "LL") + turns(ll, ll128, "LL128")
    rows.append((max(1 << 30, 2 * ll128), "ring Simple", channels))
    return {"IPCSHIM_TUNE_FILE": file(text(rows))}


def by_size(ll, ll128, channels=4, algorithm="ring"):
    """The environment in which LL serves up to `ll` bytes, LL128 up to `ll128`, and Simple
    beyond."""
    rows = [(ll, f"{algorithm} LL", channels), (ll128, f"{algorithm} LL128", channels),
            (max(1 << 30, 2 * ll128), "ring Simple", channels)]
    return {"IPCSHIM_TUNE_FILE": file(text(rows))}
