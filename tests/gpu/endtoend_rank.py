# SPDX-License-Identifier: Apache-2.0
"""One rank of the end-to-end measurements: data-parallel training steps, and the captured token
loop of a tensor-parallel model. Started by endtoend.py through turns.py."""
import torch
import torch.distributed as dist
import torch.nn as nn

from turns_rank import DEVICE, RANK, WORLD, serve, timed_us, together


def gathered(flat):
    """All ranks' copies of a flat tensor, one a row."""
    rows = torch.empty(WORLD * flat.numel(), dtype=flat.dtype, device=DEVICE)
    dist.all_gather_into_tensor(rows, flat)
    return rows.view(WORLD, -1)


class Ddp:
    """Steps of DistributedDataParallel with its own buckets: forward, backward with the
    AllReduces of the gradients, SGD. `depth` layers of width x width float32 parameters."""

    def __init__(self, width, depth, steps):
        torch.manual_seed(0)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        generator = torch.Generator().manual_seed(100 + RANK)
        self.batches = [torch.randn(32, width, generator=generator).to(DEVICE)
                        for _ in range(8)]
        self.steps, self.turn = steps, 0
        self.model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers).to(DEVICE),
                                                         device_ids=[DEVICE.index])
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.check_gradients()
        for _ in range(10):
            self.step()

    def loss(self):
        x = self.batches[self.turn % len(self.batches)]
        return nn.functional.mse_loss(self.model(x), x)

    def step(self):
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()
        self.turn += 1

    def gradient(self):
        self.optimizer.zero_grad()
        self.loss().backward()
        return torch.cat([p.grad.reshape(-1) for p in self.model.parameters()])

    def check_gradients(self):
        """What the AllReduces leave is the mean of what each rank finds alone."""
        with self.model.no_sync():
            alone = gathered(self.gradient())
        apart = (self.gradient().double() - alone.double().mean(0)).abs().max().item()
        largest = alone.abs().max().item()
        assert apart <= 1e-5 * largest, f"gradients apart by {apart} of {largest}"

    def sample(self):
        return {"step": timed_us(self.step, self.steps)}

    def check(self):
        self.check_gradients()
        rows = gathered(torch.cat([p.detach().reshape(-1) for p in self.model.parameters()]))
        assert torch.isfinite(rows).all().item(), "parameters are not finite"
        assert (rows == rows[0]).all().item(), "the ranks' parameters differ"
        with torch.no_grad():
            total = self.loss()
        dist.all_reduce(total)
        return {"loss": total.item() / WORLD}

    def close(self):
        torch.cuda.synchronize()


class Decode:
    """A token of a tensor-parallel model as a CUDA graph: `layers` times a small matrix product,
    the AllReduce of its bf16 result of `bytes` bytes, an elementwise kernel.

    The values make every AllReduce count, and are exact in bf16: each rank's input of a layer is
    a common part and an offset of its own, and the offsets of all ranks add up to 0. The product
    repeats the input, so the sum over the ranks is WORLD times the common part; the elementwise
    kernel divides it and adds the offset again. What is wrong once never comes right. Each layer
    reads another slice of the sum."""
    HIDDEN, SHARD = 4096, 512

    def __init__(self, bytes, layers, replays):
        rows, hidden, shard = bytes // (2 * self.HIDDEN), self.HIDDEN, self.SHARD
        bf16 = {"dtype": torch.bfloat16, "device": DEVICE}
        common = (torch.arange(rows * shard, device=DEVICE) % 7).view(rows, shard)
        self.offset = torch.full((rows, shard), RANK - (WORLD - 1) / 2, **bf16)
        self.start = common.to(torch.bfloat16) + self.offset
        self.expected = (common * WORLD).to(torch.bfloat16).repeat(1, hidden // shard)
        column = torch.arange(hidden, device=DEVICE) % shard
        repeat = (column == torch.arange(shard, device=DEVICE)[:, None]).to(torch.bfloat16)
        self.weights = [repeat.clone() for _ in range(layers)]  # read from memory, as a model's
        self.x, self.sums = self.start.clone(), torch.empty(rows, hidden, **bf16)
        self.replays = replays
        self.bare = self.capture(lambda tensor: None)
        self.graph = self.capture(dist.all_reduce)
        self.sample()

    def token(self, reduce):
        for layer, weight in enumerate(self.weights):
            torch.mm(self.x, weight, out=self.sums)
            reduce(self.sums)
            first = layer * self.SHARD % self.HIDDEN
            torch.add(self.offset, self.sums[:, first:first + self.SHARD], alpha=1 / WORLD,
                      out=self.x)

    def capture(self, reduce):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.token(reduce)  # handles, workspaces and connections exist before the capture
        together()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            self.token(reduce)
        return graph

    def sample(self):
        self.x.copy_(self.start)
        self.sums.fill_(float("nan"))
        token = timed_us(self.graph.replay, self.replays)
        assert torch.equal(self.x, self.start), "a layer's sum was wrong"
        assert torch.equal(self.sums, self.expected), "the last layer's sum is wrong"
        bare = timed_us(self.bare.replay, self.replays)
        return {"token": token, "without AllReduce": bare}

    def check(self):
        return {}

    def close(self):
        """The graphs go before the communicator: NCCL's waits for those that hold its calls."""
        torch.cuda.synchronize()
        self.graph.reset()
        self.bare.reset()
        del self.graph, self.bare


serve({"ddp": Ddp, "decode": Decode})
