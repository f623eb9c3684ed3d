#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ipcshim topo` of the machine it runs on: NVLinks as NVML tells them, in the matrix, for
programs and in the picture, and that they were not looked at where it does not."""
import json
import pathlib
import subprocess
import sys
import tempfile

import harness as h
import places

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "topology"))
import picture  # pylint: disable=wrong-import-position

SOCKETS = (0, 0, 1, 1)
PCI = [["LOC", "PIX", "SYS", "SYS"], ["PIX", "LOC", "SYS", "SYS"],
       ["SYS", "SYS", "LOC", "PIX"], ["SYS", "SYS", "PIX", "LOC"]]
NOT_LOOKED_AT = "NVLink is not looked at: NVML (libnvidia-ml.so.1) is not there, or knows no GPU."


def topo(*options, simgpu=h.SIMGPU, **env):
    """On a machine of SOCKETS."""
    if not h.private_shm():
        raise h.Skip("no private mount can be made here")
    command = ["unshare", "-m", "sh", "-c", f"mount --bind {places.tree(SOCKETS, True)} /sys && "
               'exec "$@"', "sh", h.COMMAND, "topo", *options]
    environment = dict(h.clean_environment(), LD_LIBRARY_PATH=simgpu, SIMGPU_DEVICES="4", **env)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    h.expect(done.returncode == 0 and not done.stderr, f"{done.returncode}: {done.stderr}")
    return done.stdout


def shown(**options):
    """What programs get; people and the picture get the same."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = pathlib.Path(folder) / "drawn.svg"
        seen = json.loads(topo("--json", "--svg", str(drawn), **options))
        svg = drawn.read_text(encoding="ascii")
    complaints = list(picture.check(svg, seen))
    h.expect(not complaints, f"picture: {complaints}")
    text = topo(**options)
    rows = [line.split()[1:5] for line in text.splitlines() if line.startswith("GPU")]
    h.expect(rows == seen["matrix"], f"the text's matrix is {rows}")
    h.expect((NOT_LOOKED_AT in text) == (seen["nvlink"] is None), text)
    h.expect("not looked at" not in text.replace(NOT_LOOKED_AT, ""), text)
    return seen, svg


def pairs():
    seen, svg = shown(SIMGPU_NVLINK="pairs")
    h.expect(seen["nvlink"] == [[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 4], [0, 0, 4, 0]], f"{seen}")
    h.expect(seen["matrix"] == [["LOC", "NV4", "SYS", "SYS"], ["NV4", "LOC", "SYS", "SYS"],
                                ["SYS", "SYS", "LOC", "NV4"], ["SYS", "SYS", "NV4", "LOC"]],
             f"{seen}")
    h.expect(svg.count(">NV4<") == 2, "two bridges in the picture")


def switches():
    seen, svg = shown(SIMGPU_NVLINK="1")
    h.expect(seen["nvlink"] == [[12 * (a != b) for b in range(4)] for a in range(4)], f"{seen}")
    h.expect(all(seen["matrix"][a][b] == "NV12" for a in range(4) for b in range(4) if a != b),
             f"{seen}")
    h.expect(svg.count(">NV12 between all<") == 1 and svg.count("NV12") == 1, "one line for all")


def one_lost():
    """A GPU that has lost its links has none with any other, and a link of one end is one."""
    seen, _ = shown(SIMGPU_NVLINK="1", SIMGPU_FAIL=",".join(
        f"nvmlDeviceGetNvLinkState:{call}:3" for call in range(65, 129)))  # of the second
    h.expect([row.count("NV12") for row in seen["matrix"]] == [2, 0, 2, 2], f"{seen}")
    h.expect(seen["matrix"][0][1] == "PIX", f"{seen}")
    seen, _ = shown(SIMGPU_NVLINK="pairs", SIMGPU_FAIL="nvmlDeviceGetNvLinkRemotePciInfo_v2:1:999")
    h.expect(seen["matrix"][0][1] == seen["matrix"][1][0] == "NV4", f"{seen}")


def none():
    seen, _ = shown()
    h.expect(seen["nvlink"] == [[0] * 4] * 4 and seen["matrix"] == PCI, f"{seen}")


def not_there():
    for options in ({"simgpu": "/nonexistent"}, {"SIMGPU_FAIL": "nvmlInit_v2:0:9"}):
        seen, _ = shown(SIMGPU_NVLINK="1", **options)
        h.expect(seen["nvlink"] is None and seen["matrix"] == PCI, f"{options}: {seen}")
    fault = {"SIMGPU_NVLINK": "1", "SIMGPU_FAIL": "nvmlDeviceGetHandleByPciBusId_v2:2:6"}
    seen, _ = shown(**fault)
    h.expect(seen["nvlink"] == [[0, 0, 12, 12], None, [12, 0, 0, 12], [12, 0, 12, 0]], f"{seen}")
    lines = [line for line in topo(**fault).splitlines() if "NVLinks (" in line]
    h.expect(lines == ["not seen: GPU1 (0000:02:00.0): its NVLinks (NVML does not know it)"],
             f"{lines}")


def another_machine():
    """This one's links are none of another's."""
    text = topo("--root", places.tree(SOCKETS, False), SIMGPU_NVLINK="1")
    h.expect("NVLink is not looked at: sysfs does not tell." in text and "NV12" not in text, text)


if __name__ == "__main__":
    h.main([("bridges", pairs), ("switches", switches), ("a GPU has lost its links", one_lost),
            ("no NVLink", none), ("no NVML, or not of all GPUs", not_there),
            ("another machine", another_machine)])
