# SPDX-License-Identifier: Apache-2.0
"""What an AllReduce takes from a matrix product beside it: the engine's, NCCL's, and NCCL's with
as many CTAs as the engine has blocks, in turns (docs/benchmark.md). Part of acceptance.py."""
import os
import time

import acceptance as a
import turns

QUICK = bool(os.environ.get("ACCEPTANCE_QUICK"))
ROUNDS = 7 if QUICK else 15
BYTES = 64 << 20
COMMAND = {"case": "overlap", "size": 4096, "bytes": BYTES, "products": 24 if QUICK else 60}
SIDES = {"nccl": {"IPCSHIM_ENABLE": "0"}, "engine": {"IPCSHIM_ENABLE": "1"}}


def engine_route(sides, since):
    """What the engine's side does with such a call, from its trace, which is written now and
    then."""
    for _ in range(30):
        for route in sides.routes("engine", since, time.time()):
            if route["bytes"] == BYTES:
                return route
        time.sleep(0.1)
    raise turns.Failed("engine: its trace has no AllReduce of that size")


def open_all(sides, ctas):
    """Sets the cases up; returns the number of blocks by side, None where it is not known."""
    since = time.time()
    sides.ask_all(do="open", **COMMAND)
    route = engine_route(sides, since)
    blocks = route["channels"] if route["route"] == "engine" else ctas
    counts = {"nccl": ctas, "engine": blocks}
    if blocks != ctas and blocks and not QUICK:
        same = f"nccl, {blocks} CTAs"
        sides.add(same, {"IPCSHIM_ENABLE": "0", "NCCL_MAX_CTAS": str(blocks)})
        sides.ask(same, do="open", **COMMAND)
        counts[same] = blocks
    return counts


def measure(ipcshim, ranks, max_bytes):
    env = turns.environment(ranks, max_bytes)
    ctas = int(env["NCCL_MAX_CTAS"]) if "NCCL_MAX_CTAS" in env else None
    name, record = f"overlap, {ranks} ranks", None
    try:
        with turns.Sides(ipcshim, name, ranks, "overlap_rank.py", env, SIDES) as sides:
            since = time.time()
            counts = open_all(sides, ctas)
            samples = sides.rounds(ROUNDS)
            checks = sides.ask_all(do="check")
            record = {"bench": "overlap", "ranks": ranks, "settings": COMMAND, "blocks": counts,
                      "environment": turns.told(env),
                      "figures": turns.figures(samples, "nccl"),
                      "covered": {side: min(answer["covered"] for answer in answers)
                                  for side, answers in checks.items()}}
            sides.finish()
            record["routes"] = {side: sides.routes(side, since, time.time())
                                for side in counts}
        judge(record, bool(max_bytes))
        a.report(name, "ok", ", ".join(f"{side}: {n or '?'} blocks"
                                       for side, n in counts.items()))
    except turns.Failed as failure:
        a.report(name, "FAIL", str(failure))
    return record


def judge(record, wanted):
    for side, routes in record["routes"].items():
        seen = {r["route"] for r in routes}
        if side != "engine" and seen != {"nccl"}:
            raise turns.Failed(f"{side}: calls went to {seen}")
        if side == "engine" and wanted and "engine" not in seen:
            raise turns.Failed("the engine took no call; see IPCSHIM_LOG=info")
        if record["covered"][side] < 0.9:
            raise turns.Failed(f"{side}: AllReduces ran for {record['covered'][side]:.0%} of the "
                               "products' time")


def print_record(record):
    sides = list(record["blocks"])
    rows = [[figure, *(turns.cell(by_side[side]) for side in sides)]
            for figure, by_side in record["figures"].items()]
    rows.append(["blocks", *(str(record["blocks"][side] or "?") for side in sides)])
    rows.append(["AllReduces by", *(turns.says(record.get("routes", {}).get(side))
                                    for side in sides)])
    turns.print_table([f"us, {record['ranks']} ranks", *(f"{side} (ratio to nccl, 95 % bound)"
                                                         if side != "nccl" else side
                                                         for side in sides)], rows)


def run_all(ipcshim, max_bytes=None, numbers_of_ranks=None):
    numbers_of_ranks = numbers_of_ranks or [2]
    reason = turns.why_not(numbers_of_ranks)
    if reason:
        a.report("overlap", "SKIP", reason)
        return
    records = [measure(ipcshim, ranks, max_bytes) for ranks in turns.placed(numbers_of_ranks)]
    records = [record for record in records if record]
    turns.write_lines("overlap", records)
    for record in records:
        print_record(record)
