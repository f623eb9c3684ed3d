# SPDX-License-Identifier: Apache-2.0
"""The ranks' half of turns.py: one rank of a PyTorch job that does what it is told over a
socket, a command at a time. A case is a class: its constructor sets up and warms up, `sample()`
returns times in us by name, `check()` raises on what is wrong and returns what to compare with
other sides, `close()` lets go of graphs."""
import json
import os
import socket
import time
import traceback

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())


def together():
    """Returns when all ranks have come, with an idle GPU."""
    torch.cuda.synchronize()
    dist.barrier(device_ids=[DEVICE.index])
    torch.cuda.synchronize()


def timed_us(work, times):
    """From all ranks' start to this one's idle GPU, by the host's clock; for one `work`."""
    together()
    start = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1e6 / times


def obey(cases, stream):
    case = None
    for line in stream:
        command = json.loads(line)
        do, answer = command.pop("do"), {"rank": RANK}
        if do == "open":
            if case:
                case.close()
            case = cases[command.pop("case")](**command)
        elif do == "sample":
            answer["us"] = case.sample()
        elif do == "check":
            answer.update(case.check() or {})
        elif do == "end":
            break
        stream.write(json.dumps(answer) + "\n")
        stream.flush()
    if case:
        case.close()


def serve(cases):
    torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl", rank=RANK, world_size=WORLD)
    together()  # the communicator exists before any capture
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["TURNS_SOCKET"])
    stream = connection.makefile("rw", encoding="utf-8")
    hello = {"side": os.environ["TURNS_SIDE"], "rank": RANK}
    stream.write(json.dumps(hello) + "\n")
    stream.flush()
    try:
        obey(cases, stream)
        torch.cuda.synchronize()
    except Exception as error:
        traceback.print_exc()
        stream.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        stream.flush()
        os._exit(1)  # other ranks may wait for this one in a collective: nothing ends in order
    dist.destroy_process_group()
