#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/plot draws every series of a made-up matrix, and says plainly what it cannot draw.

usage: test_plot.py PLOT"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

PLOT = sys.argv[1]
RANKS, MODES, SIZES = (2, 4, 8), ("eager", "graph"), [8 << 3 * i for i in range(9)]


def time_of(us):
    return {"median": us, "quartiles": [us * 0.9, us * 1.1], "min": us * 0.8, "max": us * 2,
            "samples": [us * 0.8, us, us * 2]}


def row_of(ranks, mode, size, simulated):
    """Numbers that come from a formula, not from a machine."""
    ratio = ranks * (0.2 if mode == "eager" else 0.1) + size / max(SIZES) / 4
    nccl = 10 + size * 1e-5
    return {"transport": "ipc", "ranks": ranks, "mode": mode, "bytes": size, "type": "float32",
            "op": "sum", "route": "nccl" if size == SIZES[-1] else "engine",
            "us": time_of(nccl * ratio), "nccl_us": time_of(nccl),
            "ratio": None if simulated else ratio,
            "ratio_bound": None if simulated or size == 8 else [ratio * 0.9, ratio * 1.2]}


def report_of(simulated=False):
    rows = [row_of(ranks, mode, size, simulated) for ranks in RANKS for mode in MODES
            for size in reversed(SIZES)]
    return {"format": "ipcshim-vs-nccl-1", "simulated": simulated, "version": "1.2.3",
            "commit": None, "driver": None, "cuda": "13.0", "nccl": "2.30.7",
            "date": "2000-01-02T03:04:05Z",
            "machine": {"host": "made-up", "gpus": ["No GPU", "No GPU", "Another"]},
            "rows": rows}


def plot(directory, report, picture="out.svg", env=None):
    path = directory / "in.json"
    path.write_text(report if isinstance(report, str) else json.dumps(report))
    return subprocess.run([sys.executable, PLOT, path, directory / picture],
                          capture_output=True, text=True, env=env)


def check(holds, what):
    if not holds:
        print("FAILED:", what)
        sys.exit(1)


def drawn(directory, report):
    """Ids of what the picture holds, its texts, and the number of points of each id."""
    done = plot(directory, report)
    check(done.returncode == 0 and not done.stderr, f"plot: {done.stderr}")
    root = xml.parse(directory / "out.svg").getroot()
    check(root.tag == "{http://www.w3.org/2000/svg}svg", root.tag)
    points = {}
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        for path in group.iter("{http://www.w3.org/2000/svg}path"):
            points.setdefault(group.get("id"), path.get("d").count("L") + 1)
    return points, " | ".join("".join(text.itertext())
                              for text in root.iter("{http://www.w3.org/2000/svg}text"))


def series():
    return [f"{ranks} ranks, {mode}" for ranks in RANKS for mode in MODES]


def test_all_series(directory):
    points, text = drawn(directory, report_of())
    for name in series():
        check(points.get(f"ratio of {name}") == len(SIZES), f"ratio of {name}: {points}")
        check(f"bound of {name}" in points, f"bound of {name}")
        for who in ("engine", "NCCL"):
            check(points.get(f"time of {who}, {name}") == len(SIZES), f"{who}, {name}")
        check(text.count(name) == 3, f"{name} in the legends: {text}")
    for words in ("2 x No GPU, 1 x Another on made-up, 2000-01-02", "NCCL 2.30.7",
                  "message size (bytes", "(us, median)", "95 % bound", "8 B", "4 KB"):
        check(words in text, f"{words!r} is missing in {text}")
    check("SIMULATED" not in text and "commit" not in text, text)
    first = (directory / "out.svg").read_bytes()
    drawn(directory, report_of())
    check(first == (directory / "out.svg").read_bytes(), "the same input, another picture")


def test_simulated(directory):
    points, text = drawn(directory, report_of(simulated=True))
    check("SIMULATED" in text and "no ratios" in text, text)
    check(not any(name and name.startswith("ratio") for name in points), "ratios are drawn")
    check(sum(bool(name) and name.startswith("time of") for name in points) == 12, "times")


def test_two_types(directory):
    report = report_of()
    report["rows"] += [dict(row, type="int8") for row in report["rows"]]
    points, _ = drawn(directory, report)
    for name in series():
        for kind in ("float32", "int8"):
            check(points.get(f"ratio of {name}, {kind}") == len(SIZES), f"{name}, {kind}")


def test_png(directory):
    check(plot(directory, report_of(), "out.png").returncode == 0, "png")
    check((directory / "out.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n", "png")


def test_refusals(directory):
    for text, words in (("{", "in.json"), ("[]", "vs-nccl"), ('{"format": "x"}', "vs-nccl"),
                        ('{"format": "ipcshim-vs-nccl-1", "rows": []}', "no rows")):
        done = plot(directory, text)
        check(done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr,
              f"{text}: {done.stderr}")
    check(plot(directory, report_of(), "out.xyz").returncode == 2, "an unknown kind")


def test_without_matplotlib(directory):
    (directory / "matplotlib.py").write_text("raise ImportError\n")
    env = dict(os.environ, PYTHONPATH=str(directory))
    done = plot(directory, report_of(), env=env)
    check(done.returncode == 2 and "needs matplotlib: apt-get" in done.stderr, done.stderr)


def main():
    with tempfile.TemporaryDirectory() as name:
        test_without_matplotlib(pathlib.Path(name))
    if subprocess.run([sys.executable, PLOT, "--can"], capture_output=True).returncode:
        print("SKIP: matplotlib is not installed")
        sys.exit(77)
    tests = (test_all_series, test_simulated, test_two_types, test_png, test_refusals)
    for test in tests:
        with tempfile.TemporaryDirectory() as name:
            test(pathlib.Path(name))
    print(f"{len(tests) + 1} tests")


main()
