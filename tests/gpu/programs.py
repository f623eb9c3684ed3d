# SPDX-License-Identifier: Apache-2.0
"""Real programs on a machine with a GPU: PyTorch jobs, a binding by path, CuPy. Part of
acceptance.py."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import acceptance as a

HERE = pathlib.Path(__file__).parent


def importable(module):
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
    return done.returncode == 0


def nccl_environment(gpus, ranks):
    """Ranks that share a GPU take NCCL 2.30; where they do not, a program's own serves."""
    if ranks <= gpus or not os.environ.get("NCCL_LIB_DIR"):
        return {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    return {"IPCSHIM_NCCL_LIB": os.environ["NCCL_LIB_DIR"] + "/libnccl.so.2"}


port = 29600


def job(ipcshim, name, ranks, command, limit=60, **env):
    """(output, calls by route), the output None when the job failed."""
    global port
    port += 1
    text = a.run(name, [ipcshim, "run", "--device", "gpu", "--ranks", str(ranks), "--",
                        sys.executable, *command],
                 a.environment(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                               IPCSHIM_TRACE=str(a.OUT / "trace-%p.json"),
                               **nccl_environment(a.gpu_count(), ranks), **env), limit)
    routes = {}
    for (route, _), calls in a.traced_routes("trace-*.json").items():
        routes[route] = routes.get(route, 0) + calls
    return text, routes


def one(ipcshim, name, ranks, command, word, wanted=("engine",), limit=60, **env):
    text, routes = job(ipcshim, name, ranks, command, limit, **env)
    if text is None:
        return None
    good = text.count(f"{word}: ok") == ranks and set(routes) == set(wanted)
    a.report(name, "ok" if good else "FAIL",
             ", ".join(f"{route}: {calls}" for route, calls in sorted(routes.items())))
    return text


def losses(text):
    for line in (text or "").splitlines():
        if line.startswith("losses "):
            return json.loads(line[7:])
    return []


def same_training(ipcshim, kind, ranks):
    """The loss curve behind the engine is NCCL's, within rounding."""
    command = [str(HERE / "torch_programs.py"), kind]
    ours = losses(one(ipcshim, f"PyTorch {kind}, {ranks} ranks", ranks, command, kind))
    theirs = losses(one(ipcshim, f"PyTorch {kind}, {ranks} ranks, NCCL", ranks, command, kind,
                        ("nccl",), IPCSHIM_ENABLE="0"))
    if ours and theirs:
        apart = max(abs(x - y) / abs(y) for x, y in zip(ours, theirs))
        a.report(f"PyTorch {kind}: the loss curves agree", "ok" if apart < 1e-4 else "FAIL",
                 f"apart by {apart:.1e} of the loss over {len(ours)} steps")


def run_all(ipcshim):
    if importable("torch"):
        script = str(HERE / "torch_programs.py")
        same_training(ipcshim, "ddp", 2)
        same_training(ipcshim, "fsdp2", 4)
        for name, ranks in (("tensor_parallel", 2), ("calls", 2), ("calls", 4), ("graph", 2),
                            ("abort", 2)):
            one(ipcshim, f"PyTorch {name}, {ranks} ranks", ranks, [script, name], name)
        one(ipcshim, "bound by path as pynccl, 2 ranks", 2, [str(HERE / "pynccl.py")],
            "pynccl")
    else:
        a.report("PyTorch", "SKIP", "no torch here")
    if importable("cupy"):
        meeting = tempfile.mktemp(prefix="ipcshim-cupy-")
        one(ipcshim, "CuPy, 2 ranks", 2, [str(HERE / "cupy_nccl.py")], "cupy",
            CUPY_MEETING=meeting)
        pathlib.Path(meeting).unlink(missing_ok=True)
    else:
        a.report("CuPy", "SKIP", "no cupy here")
