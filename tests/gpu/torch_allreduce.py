# SPDX-License-Identifier: Apache-2.0
"""One rank of a PyTorch job on the first GPU: all_reduce of several types, operations and
sizes, each element compared with the known result. Started by `ipcshim run --ranks N`."""
import os

import torch
import torch.distributed as dist

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.cuda.set_device(rank % torch.cuda.device_count())
dist.init_process_group("nccl", rank=rank, world_size=world)
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64):
    for count in (1, 1000, 1 << 16, 3 << 20):
        index = torch.arange(count, device="cuda") % 11
        for op, expected in (
                (dist.ReduceOp.SUM, sum(index + r for r in range(world))),
                (dist.ReduceOp.MAX, index + world - 1),
                (dist.ReduceOp.MIN, index)):
            tensor = (index + rank).to(dtype)
            dist.all_reduce(tensor, op=op)
            assert torch.equal(tensor, expected.to(dtype)), (dtype, count, op)
side = torch.cuda.Stream()
total = torch.ones(5000, device="cuda")
for turn in range(20):  # issue order across streams
    with torch.cuda.stream(side if turn % 2 else torch.cuda.current_stream()):
        side.wait_stream(torch.cuda.default_stream())
        dist.all_reduce(total)
        total /= world
    torch.cuda.current_stream().wait_stream(side)
torch.cuda.synchronize()
assert torch.equal(total, torch.ones_like(total))
dist.barrier()
dist.destroy_process_group()
print("torch: ok", flush=True)
