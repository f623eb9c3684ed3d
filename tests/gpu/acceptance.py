#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the engine on a machine with a GPU, with real CUDA IPC between processes.

Ranks share the GPUs that are there, under MPS where there are fewer than ranks. Standard
library only. What is not installed is skipped with a reason.

  NCCL_LIB_DIR     folder of libnccl.so.2; several ranks on one GPU take 2.30 or newer
  ALL_REDUCE_PERF  nccl-tests' all_reduce_perf, built with MPI=1
  OUT              folder for logs (default: a new one under /tmp)
  SOAK_SECONDS     of the soak in all (default: 300); SOAK_SEED repeats one;
                   SOAK_VERIFY=N sets IPCSHIM_VERIFY
  ACCEPTANCE_QUICK not empty: nccl-tests with 8 ranks and with graphs only; endtoend with 2
                   ranks, and it and overlap in less than a minute
endtoend and overlap also take the caller's IPCSHIM_* variables and NCCL_MAX_CTAS.
"""
import argparse
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# The engine's kernels, as IPCSHIM_ALGO and IPCSHIM_PROTO name them.
KERNELS = [("ring", "LL"), ("ring", "LL128"), ("ring", "Simple"), ("oneshot", "LL"),
           ("oneshot", "LL128"), ("twoshot", "LL"), ("twoshot", "LL128"),
           ("hierarchical", "Simple")]  # with ranks that have no halves the ring
ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = pathlib.Path(os.environ.get("OUT") or tempfile.mkdtemp(prefix="ipcshim-gpu-"))
RESULTS = []


def environment(**extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("IPCSHIM_")}
    env.update(NCCL_MULTI_RANK_GPU_ENABLE="1", NCCL_NVLS_ENABLE="0", NCCL_MAX_CTAS="16",
               IPCSHIM_LOG="warn", IPCSHIM_LINKS="any", IPCSHIM_MAX_BYTES="16G")
    if env.get("NCCL_LIB_DIR"):
        env["LD_LIBRARY_PATH"] = env["NCCL_LIB_DIR"] + ":" + env.get("LD_LIBRARY_PATH", "")
    env.update(extra)
    return env


def forced(kernel):
    return dict(zip(("IPCSHIM_ALGO", "IPCSHIM_PROTO"), kernel))


def report(name, verdict, detail=""):
    RESULTS.append(verdict)
    print(f"{verdict:5} {name:46} {detail}", flush=True)


def stop(process):
    """First politely: mpirun then ends its ranks, which are not in its process group."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(process.pid, how)
        try:
            process.wait(10)
            return
        except subprocess.TimeoutExpired:
            pass


def run(name, command, env=None, limit=120):
    """Runs it with its output in OUT; None when it did not end with 0 in time."""
    log = OUT / (re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") + ".log")
    start = time.time()
    with open(log, "w") as stream:
        process = subprocess.Popen(command, cwd=ROOT, env=env or environment(),
                                   stdout=stream, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = "timeout"
            stop(process)
    text = log.read_text(errors="replace")
    if code != 0:
        report(name, "FAIL", f"exit {code} after {time.time() - start:.0f} s; {log}")
        print("\n".join(text.splitlines()[-15:]), flush=True)
        return None
    return text


class Mps:
    """MPS with folders of its own: without it a hand-over between ranks takes 4 ms."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="ipcshim-mps-")
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = self.folder + "/pipe"
        os.environ["CUDA_MPS_LOG_DIRECTORY"] = self.folder + "/log"
        for kind in ("pipe", "log"):
            os.mkdir(f"{self.folder}/{kind}")
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=True)

    def __exit__(self, *_):
        subprocess.run(["nvidia-cuda-mps-control"], input="quit\n", text=True, timeout=60)
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"):
            del os.environ[name]
        shutil.rmtree(self.folder, ignore_errors=True)


def gpu_count():
    if not shutil.which("nvidia-smi"):
        return 0
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(visible.split(",")) if visible else listed.count("UUID")


def traced_routes(pattern):
    """(route, protocol) -> calls, over the traces of one run."""
    routes = {}
    for path in OUT.glob(pattern):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            if event.get("name") == "ncclAllReduce":
                key = (event["route"], event.get("protocol"))
                routes[key] = routes.get(key, 0) + 1
        path.unlink()
    return routes


def bench(name, ipcshim, *options, limit=150, **env):
    text = run(name, [ipcshim, "bench", "--device", "gpu", *options], environment(**env),
               limit)
    if text is not None:
        rows = [line for line in text.splitlines() if re.match(r"\s+\d+\s+\d+ \w+", line)]
        wrong = [line for line in rows if " ok " not in line]
        report(name, "FAIL" if wrong or not rows else "ok", f"{len(rows)} rows")
    return text


def benches(ipcshim):
    for ranks in (2, 4, 8):
        bench(f"bench {ranks} ranks, by size", ipcshim, "--ranks", str(ranks), "--json",
              str(OUT / f"bench-{ranks}.json"), "--max", "64M", "--factor", "4")
    bench("bench 4 ranks, graph", ipcshim, "--ranks", "4", "--graph", "--max", "16M",
          "--factor", "8")
    for kernel in KERNELS:
        for ranks in (2, 3, 8):
            bench(f"bench {' '.join(kernel)}, {ranks} ranks, all types and ops", ipcshim,
                  "--ranks", str(ranks), "--types", "all", "--ops", "all", "--sizes",
                  "8,1000,300K,3M", "--iters", "1", "--samples", "1", "--warmup", "0",
                  "--no-nccl", "--offset-elems", "1" if ranks == 3 else "0",
                  **forced(kernel))


def nccl_tests(shim):
    perf = os.environ.get("ALL_REDUCE_PERF")
    if not perf or not shutil.which("mpirun"):
        report("nccl-tests", "SKIP", "set ALL_REDUCE_PERF; mpirun is needed too")
        return
    whole = ["-b", "8", "-e", "64M", "-f", "2", "-n", "5", "-w", "1", "-c", "1"]
    few = ["-b", "1000", "-e", "2M", "-f", "45", "-n", "1", "-w", "0", "-c", "1", "-o", "all",
           "-d", "all"]
    cases = [(f"{n} ranks", n, whole, {}) for n in (2, 4, 8)]
    cases += [(f"{' '.join(k)}, {n} ranks", n, whole, forced(k))
              for k in KERNELS for n in (2, 4, 8)]
    cases += [("all types and ops, 2 ranks", 2, few, {}),
              ("all types and ops, 8 ranks", 8, few, {}),
              ("4 ranks, graphs", 4, whole + ["-G", "2"], {}),
              ("8 ranks, blocking calls", 8, whole + ["-z", "1"], {}),
              ("2 ranks, switched off", 2, whole, {"IPCSHIM_ENABLE": "0"})]
    if os.environ.get("ACCEPTANCE_QUICK"):
        cases = [case for case in cases if case[1] == 8 or "graph" in case[0]]
    for title, ranks, options, extra in cases:
        name = f"nccl-tests {title}"
        nccl_test(shim, name, ranks, options, "nccl" if "off" in title else
                  "both" if options is few else "engine", extra)


def nccl_test(shim, name, ranks, options, route, extra, wrapper=()):
    """One run of all_reduce_perf; `route` is where all of its calls have to go."""
    env = environment(IPCSHIM_TRACE=str(OUT / "trace-%p.json"), **extra)
    if ranks > gpu_count():
        env["NCCL_TESTS_DEVICE"] = "0"
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np",
               str(ranks), "-x", f"LD_PRELOAD={shim}", *wrapper,
               os.environ["ALL_REDUCE_PERF"], *options]
    text = run(name, command, env, 200)
    routes = traced_routes("trace-*.json")
    if text is None:
        return
    good = re.search(r"Out of bounds values : 0 OK", text)
    detail = ", ".join(f"{r}/{p}: {n}" for (r, p), n in sorted(routes.items(), key=str))
    seen = {r for r, _ in routes}
    good = good and seen == ({"engine", "nccl"} if route == "both" else {route})
    report(name, "ok" if good else "FAIL", detail)


def links(ipcshim, shim):
    """One GPU a rank, without MPS."""
    gpus = gpu_count()
    if gpus < 2:
        report("one GPU a rank", "SKIP", f"{gpus} GPU here")
        return
    whole = ["-b", "8", "-e", "64M", "-f", "2", "-n", "5", "-w", "1", "-c", "1"]
    for ranks in sorted({2, min(gpus, 8)}):
        bench(f"bench {ranks} ranks on {ranks} GPUs, by size", ipcshim, "--ranks", str(ranks),
              "--json", str(OUT / f"bench-{ranks}-gpus.json"), "--max", "64M", "--factor", "4")
        bench(f"bench {ranks} ranks on {ranks} GPUs, graph", ipcshim, "--ranks", str(ranks),
              "--graph", "--max", "64M", "--factor", "8")
        for transport, kernel in itertools.product(("ipc", "host"), KERNELS):
            name = f"{transport}, {' '.join(kernel)}, {ranks} GPUs"
            env = {"IPCSHIM_TRANSPORT": transport, **forced(kernel)}
            bench(f"bench {name}, all types and ops", ipcshim, "--ranks",
                  str(ranks), "--types", "all", "--ops", "all", "--sizes", "8,1000,300K,3M",
                  "--iters", "1", "--samples", "1", "--warmup", "0", "--no-nccl",
                  **env)
            if os.environ.get("ALL_REDUCE_PERF"):
                nccl_test(shim, f"nccl-tests {name}", ranks, whole, "engine", env)


def forms(shim):
    """One GPU a rank, however the processes come to their GPUs."""
    gpus = gpu_count()
    if gpus < 2 or not os.environ.get("ALL_REDUCE_PERF"):
        report("forms", "SKIP", f"{gpus} GPU here" if gpus < 2 else "set ALL_REDUCE_PERF")
        return
    whole = ["-b", "8", "-e", "64M", "-f", "2", "-n", "5", "-w", "1", "-c", "1"]
    for ranks in sorted({2, min(gpus, 8)}):
        nccl_test(shim, f"nccl-tests, {ranks} GPUs, default links", ranks, whole, "nccl",
                  {"IPCSHIM_LINKS": "pcie"})
        for transport in ("ipc", "host"):
            env = {"IPCSHIM_TRANSPORT": transport}
            nccl_test(shim, f"nccl-tests, one process, {ranks} GPUs, {transport}", 1,
                      whole + ["-g", str(ranks)], "engine", env)
            nccl_test(shim, f"nccl-tests, {ranks} processes that see one GPU each, {transport}",
                      ranks, whole, "engine", dict(env, NCCL_TESTS_DEVICE="0"), wrapper=[
                          "bash", "-c", "CUDA_VISIBLE_DEVICES=$OMPI_COMM_WORLD_LOCAL_RANK "
                          'exec "$0" "$@"'])


def torch(ipcshim):
    probe = subprocess.run([sys.executable, "-c", "import torch"], capture_output=True)
    if probe.returncode:
        report("PyTorch all_reduce", "SKIP", "no torch here")
        return
    env = {}
    if gpu_count() < 2 and os.environ.get("NCCL_LIB_DIR"):
        # PyTorch's own may be too old to share a GPU.
        env["IPCSHIM_NCCL_LIB"] = os.environ["NCCL_LIB_DIR"] + "/libnccl.so.2"
    else:
        env["LD_LIBRARY_PATH"] = os.environ.get("LD_LIBRARY_PATH", "")
    text = run("PyTorch all_reduce, 2 ranks",
               [ipcshim, "run", "--device", "gpu", "--ranks", "2", "--", sys.executable,
                str(ROOT / "tests/gpu/torch_allreduce.py")],
               environment(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511",
                           IPCSHIM_TRACE=str(OUT / "trace-%p.json"), **env), 180)
    routes = traced_routes("trace-*.json")
    if text is not None:
        taken = routes and all(route == "engine" for route, _ in routes)
        good = taken and text.count("torch: ok") == 2
        report("PyTorch all_reduce, 2 ranks", "ok" if good else "FAIL", str(routes))


def sanitizer(ipcshim):
    """Without MPS, which the sanitizer does not attach to. NCCL asks the runtime for what is
    not there, and bears the error: only accesses and barriers count here."""
    tool = shutil.which("compute-sanitizer")
    if not tool:
        report("compute-sanitizer", "SKIP", "not installed")
        return
    for check, kernel in itertools.product(("memcheck", "synccheck"), KERNELS):
        name = f"compute-sanitizer {check}, {' '.join(kernel)}"
        text = run(name, [tool, "--tool", check, "--target-processes", "all",
                          "--report-api-errors", "no",
                          "--error-exitcode", "9", ipcshim, "bench", "--device", "gpu",
                          "--ranks", "4" if kernel[0] == "hierarchical" else "2",
                          "--sizes", "8,1000,200K", "--iters", "1",
                          "--warmup", "0", "--samples", "1", "--no-nccl"],
                   environment(**forced(kernel)), 240)
        if text is not None:
            clean = "ERROR SUMMARY: 0 errors" in text and " ok " in text
            report(name, "ok" if clean else "FAIL",
                   f"{text.count('ERROR SUMMARY: 0 errors')} clean reports")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build"))
    parser.add_argument("--only", default="conformance,links,forms,sanitizer,faults,bench,nccl-tests,"
                        "torch,programs,endtoend,overlap,soak,negative,torn")
    parser.add_argument("--max-bytes", help="IPCSHIM_MAX_BYTES of endtoend and overlap; without "
                        "it the engine takes what its policy says")
    parser.add_argument("--ranks", type=lambda text: [int(n) for n in text.split(",")],
                        help="numbers of ranks of endtoend and overlap, as 2,4,8")
    options = parser.parse_args()
    only = options.only.split(",")
    import faults  # which uses this file; before soak, whose folders have another one
    import programs  # likewise
    import soak  # likewise
    ipcshim = f"{options.build}/tools/ipcshim"
    shim = f"{options.build}/shim/libipcshim.so"
    OUT.mkdir(parents=True, exist_ok=True)
    if "conformance" in only:
        text = run("conformance suite", [f"{options.build}/tests/gpu/test-conformance"])
        if text is not None:
            report("conformance suite", "ok", f"{text.count(chr(10) + 'ok ')} cases")
    if "links" in only:
        links(ipcshim, shim)
    if "forms" in only:
        forms(shim)
    if "sanitizer" in only:
        sanitizer(ipcshim)
    if "faults" in only:
        faults.run_all(shim)
    if gpu_count() >= 2 and "torch" in only:
        torch(ipcshim)
    if gpu_count() >= 4 and "programs" in only:
        programs.run_all(ipcshim)
        only.remove("programs")
    if gpu_count() >= 2 and "torn" in only:
        soak.torn_lines(options.build)
        only.remove("torn")
    shared = {"bench", "nccl-tests", "programs", "soak", "negative", "torn"} & set(only)
    if shared or ("torch" in only and gpu_count() < 2):
        with Mps():
            if "bench" in only:
                benches(ipcshim)
            if "nccl-tests" in only:
                nccl_tests(shim)
            if gpu_count() < 2 and "torch" in only:
                torch(ipcshim)
            if "programs" in only:
                programs.run_all(ipcshim)
            if "soak" in only:
                soak.soak_all(options.build)
            if "negative" in only:
                soak.negative_control(options.build)
            if "torn" in only:
                soak.torn_lines(options.build)
    if "endtoend" in only:
        import endtoend  # likewise
        endtoend.run_all(ipcshim, options.max_bytes, options.ranks)
    if "overlap" in only:
        import overlap  # likewise
        overlap.run_all(ipcshim, options.max_bytes, options.ranks)
    count = {v: RESULTS.count(v) for v in ("ok", "FAIL", "SKIP")}
    print(f"{count['ok']} passed, {count['FAIL']} failed, {count['SKIP']} skipped")
    return 1 if count["FAIL"] else 0


if __name__ == "__main__":
    sys.modules["acceptance"] = sys.modules["__main__"]  # one list of results
    sys.exit(main())
