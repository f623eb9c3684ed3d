# SPDX-License-Identifier: Apache-2.0
"""What a whole program gains: training steps and a captured token loop, with the engine and
with NCCL alone, in turns (docs/benchmark.md). Part of acceptance.py."""
import os
import time

import acceptance as a
import turns

SIDES = {"nccl": {"IPCSHIM_ENABLE": "0"}, "engine": {"IPCSHIM_ENABLE": "1"}}
QUICK = bool(os.environ.get("ACCEPTANCE_QUICK"))
ROUNDS = 7 if QUICK else 15
TRAINED_RANKS = (2, 4)


def cases(ranks):
    """name -> what opens it in the ranks, and whether its AllReduces are captured."""
    chosen = {}
    if ranks in TRAINED_RANKS:
        steps = 10 if QUICK else 30
        chosen["DDP, 1 MB of gradients"] = (
            {"case": "ddp", "width": 256, "depth": 4, "steps": steps}, False)
        chosen["DDP, 25 MB of gradients"] = (
            {"case": "ddp", "width": 1024, "depth": 6, "steps": steps}, False)
    for kilobytes in (8, 16, 64):
        chosen[f"decode, 64 layers x {kilobytes} KB"] = (
            {"case": "decode", "bytes": kilobytes << 10, "layers": 64,
             "replays": 8 if QUICK else 20}, True)
    return chosen


def compare_losses(name, checks):
    """Both sides made the same steps with the same data."""
    losses = {side: answers[0].get("loss") for side, answers in checks.items()}
    if losses["nccl"] is None:
        return
    apart = abs(losses["engine"] - losses["nccl"]) / abs(losses["nccl"])
    if not apart < 1e-3:  # not a number is wrong too
        raise turns.Failed(f"{name}: losses {losses} are apart by {apart:.1e}")


def measure_case(sides, name, command):
    since = time.time()
    sides.ask_all(do="open", **command)
    samples = sides.rounds(ROUNDS)
    compare_losses(name, sides.ask_all(do="check"))
    return {"bench": "endtoend", "case": name, "ranks": sides.count, "settings": command,
            "environment": turns.told(sides.env), "time": [since, time.time()],
            "figures": turns.figures(samples, "nccl")}


def judge_routes(record, wanted):
    """A side whose calls went elsewhere measured something else."""
    seen = {side: {r["route"] for r in routes} for side, routes in record["routes"].items()}
    if seen["nccl"] != {"nccl"}:
        raise turns.Failed(f"{record['case']}: without the engine, calls went to {seen['nccl']}")
    if wanted and "engine" not in seen["engine"]:
        raise turns.Failed(f"{record['case']}: the engine took no call; see IPCSHIM_LOG=info")


def measure(ipcshim, ranks, max_bytes):
    """The records of one number of ranks; those before a failure stand."""
    env = turns.environment(ranks, max_bytes)
    records, name, chosen = [], f"end to end, {ranks} ranks", cases(ranks)
    try:
        with turns.Sides(ipcshim, name, ranks, "endtoend_rank.py", env, SIDES) as sides:
            for case, (command, _) in chosen.items():
                records.append(measure_case(sides, case, command))
            sides.finish()
            for record in records:
                captured = chosen[record["case"]][1]
                record["routes"] = {side: sides.routes(side, *record["time"], captured)
                                    for side in SIDES}
        for record in records:
            judge_routes(record, bool(max_bytes))
        a.report(name, "ok", f"{len(records)} cases")
    except turns.Failed as failure:
        a.report(name, "FAIL", str(failure))
    return records


def print_records(records):
    rows = []
    for record in records:
        for figure, by_side in record["figures"].items():
            routes = record.get("routes", {}).get("engine")
            rows.append([record["case"], str(record["ranks"]), figure,
                         turns.cell(by_side["nccl"]), turns.cell(by_side["engine"]),
                         turns.says(routes) if figure != "without AllReduce" else "-"])
    turns.print_table(["case", "ranks", "us per", "NCCL", "engine (ratio, 95 % bound)",
                       "with the engine, AllReduces by"], rows)


def run_all(ipcshim, max_bytes=None, numbers_of_ranks=None):
    numbers_of_ranks = numbers_of_ranks or ([2] if QUICK else [2, 4, 8])
    reason = turns.why_not(numbers_of_ranks)
    if reason:
        a.report("end to end", "SKIP", reason)
        return
    records = []
    for ranks in turns.placed(numbers_of_ranks):
        records += measure(ipcshim, ranks, max_bytes)
    turns.write_lines("endtoend", records)
    print_records(records)
