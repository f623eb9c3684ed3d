# SPDX-License-Identifier: Apache-2.0
"""One rank of a PyTorch job, named by the first argument; prints "NAME: ok" at its end.
Started by `ipcshim run --ranks N`; ranks share GPUs where there are fewer."""
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.nn as nn

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
DEVICE = torch.device("cuda", RANK % torch.cuda.device_count())


def network(width=256, depth=4, seed=0):
    torch.manual_seed(seed)
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 1)).to(DEVICE)


def batches(steps, width=256):
    generator = torch.Generator().manual_seed(100 + RANK)
    for _ in range(steps):
        x = torch.randn(32, width, generator=generator).to(DEVICE)
        yield x, x.sum(1, keepdim=True)


def train(model, steps=100):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for x, y in batches(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        losses.append(total.item() / WORLD)
    assert sum(losses[-5:]) < sum(losses[:5]) / 2, losses
    if RANK == 0:
        print("losses " + json.dumps(losses), flush=True)


def ddp():
    train(nn.parallel.DistributedDataParallel(network(), device_ids=[DEVICE.index],
                                              bucket_cap_mb=1))


def fsdp2():
    """Sharded over pairs, replicated over the pairs: the gradients are all-reduced there."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    shape = (WORLD // 2, 2) if WORLD > 2 else (WORLD,)
    names = ("replicate", "shard")[-len(shape):]
    model = network()
    mesh = init_device_mesh("cuda", shape, mesh_dim_names=names)
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for module in model.modules():
        if hasattr(module, "set_force_sum_reduction_for_comms"):
            module.set_force_sum_reduction_for_comms(True)
    train(model)


def tensor_parallel():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(DEVICE)
    x = torch.randn(16, 64, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    expected = model(x)
    mesh = init_device_mesh("cuda", (WORLD,))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def calls():
    """Async, coalesced, on two streams, other groups, barrier, objects, a new start."""
    works, tensors = [], [torch.full((1000 + i,), float(RANK), device=DEVICE)
                          for i in range(16)]
    for tensor in tensors:
        works.append(dist.all_reduce(tensor, async_op=True))
    for work in works:
        work.wait()
    with dist._coalescing_manager(device=DEVICE):
        for tensor in tensors:
            dist.all_reduce(tensor)
    total = sum(range(WORLD)) * WORLD
    assert all((tensor == total).all().item() for tensor in tensors)
    side, value = torch.cuda.Stream(), torch.ones(5000, device=DEVICE)
    for turn in range(40):  # each call needs the result of the one before, elsewhere
        stream = side if turn % 2 else torch.cuda.default_stream()
        stream.wait_stream(torch.cuda.default_stream() if turn % 2 else side)
        with torch.cuda.stream(stream):
            dist.all_reduce(value)
            value /= WORLD
    torch.cuda.synchronize()
    assert (value == 1).all().item()
    pairs = [dist.new_group([i, i + 1]) for i in range(0, WORLD - 1, 2)]
    if RANK // 2 < len(pairs):
        mine = torch.full((100,), float(RANK), device=DEVICE)
        dist.all_reduce(mine, group=pairs[RANK // 2])
        assert (mine == RANK // 2 * 4 + 1).all().item()
    objects = [None] * WORLD
    dist.all_gather_object(objects, {"rank": RANK})
    assert [entry["rank"] for entry in objects] == list(range(WORLD))
    dist.barrier()


def graph():
    """Captured, replayed, and mixed with eager calls."""
    value = torch.ones(4096, device=DEVICE)
    dist.all_reduce(value)  # the communicator exists before the capture
    torch.cuda.synchronize()
    value.fill_(1)
    captured = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(captured, stream=stream, capture_error_mode="thread_local"):
        for _ in range(3):
            dist.all_reduce(value)
            value /= WORLD
    for _ in range(10):
        captured.replay()
        dist.all_reduce(value)
        value /= WORLD
    torch.cuda.synchronize()
    assert (value == 1).all().item()


def abort():
    """Rank 1 stays away; rank 0 aborts from another thread and gets out."""
    value = torch.ones(1000, device=DEVICE)
    dist.all_reduce(value)
    torch.cuda.synchronize()
    if RANK == 0:
        dist.all_reduce(value, async_op=True)
        backend = dist.distributed_c10d._get_default_group()._get_backend(DEVICE)
        start = time.time()
        thread = threading.Thread(target=backend.abort)
        thread.start()
        thread.join(20)
        torch.cuda.synchronize()
        assert time.time() - start < 10, time.time() - start
    else:
        time.sleep(6)
    print("abort: ok", flush=True)
    os._exit(0)


def main():
    job = sys.argv[1]
    torch.cuda.set_device(DEVICE)
    bound = {"device_id": DEVICE} if job == "calls" else {}  # makes new_group split
    dist.init_process_group("nccl", rank=RANK, world_size=WORLD, **bound)
    globals()[job]()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    print(f"{job}: ok", flush=True)


main()
