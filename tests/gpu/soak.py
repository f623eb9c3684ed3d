# SPDX-License-Identifier: Apache-2.0
"""The soak on a GPU, part of acceptance.py: random AllReduces, eager and replayed, filled and
checked by kernels, every element of every rank."""
import os
import pathlib
import subprocess
import sys

import acceptance as a

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "soak"), str(HERE.parent / "process")]
import soaking  # noqa: E402
import tables  # noqa: E402

# By name: (LL up to, LL128 up to, options). In the first all protocols carry short messages,
# in the second each carries those that it is made for, and several pieces.
PROFILES = {
    "short": (1 << 10, 8 << 10, ["--large", 20, "--max-bytes", 4 << 20]),
    "all sizes": (64 << 10, 1 << 20, ["--large", 300, "--max-bytes", 32 << 20]),
}


def soak(build, ranks, profile, seconds, seed):
    ll, ll128, options = PROFILES[profile]
    build = os.path.abspath(build)
    env = a.environment(IPS_SHIM=f"{build}/shim/libipcshim.so",
                        IPCSHIM_MAX_BYTES="1G", **tables.mixed(ll, ll128, channels=8))
    if os.environ.get("SOAK_VERIFY"):
        # NCCL's kernels of all ranks and both communicators must fit beside the engine's.
        env.update(IPCSHIM_VERIFY=os.environ["SOAK_VERIFY"], NCCL_MAX_CTAS="4")
    arguments = ["--seconds", seconds, "--remake", 5000, *options]
    return soaking.run(f"{build}/tests/soak/ips-soak", arguments, ranks, seed, env,
                       seconds + 150)


def soak_all(build):
    """SOAK_SECONDS in all."""
    seconds = int(os.environ.get("SOAK_SECONDS") or 300)
    seed = int(os.environ.get("SOAK_SEED") or 0) or int.from_bytes(os.urandom(4), "little")
    for ranks in (2, 8):
        for profile in PROFILES:
            name = f"soak, {ranks} ranks, {profile}"
            run = soak(build, ranks, profile, max(seconds // (2 * len(PROFILES)), 1), seed)
            (a.OUT / (name.replace(", ", "-").replace(" ", "-") + ".log")).write_text(run.output)
            what = soaking.describe(run.result) if run.result else ""
            a.report(name, "FAIL" if run.complaints else "ok", f"seed {seed}: {what}")
            print("\n".join(run.complaints[:10]), end="\n" if run.complaints else "", flush=True)
            seed += 1


def changed_copy(title, script, build):
    """Runs a script that changes a copy of the sources, with its output in OUT."""
    done = subprocess.run([sys.executable, str(HERE / script), "--build", build, "--device",
                           "gpu"], env=a.environment(), capture_output=True, text=True)
    log = script.replace("_", "-").replace(".py", ".log")
    (a.OUT / log).write_text(done.stdout + done.stderr)
    for line in done.stdout.splitlines():
        print("  " + line, flush=True)
    print("".join(done.stderr.splitlines(True)[-10:]), end="", flush=True)
    a.report(title, "FAIL" if done.returncode else "ok")


def negative_control(build):
    """A barrier removed is seen; the delay that makes room for the fault is not."""
    changed_copy("negative control: a barrier removed", "negative_control.py", build)


def torn_lines(build):
    """How often LL128's guard rejects a line; the results are right."""
    changed_copy("torn lines counted", "torn_lines.py", build)
