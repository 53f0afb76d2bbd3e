"""Jobs of four ranks on the processor that hold copies, some with a planted flip: ``python -m tests.torch.copies``."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from trainguard_collector.recorder.recorder import Recorder

STEPS, FLIPPED_AT = 7, 4
Job = Callable[[Recorder, int], None]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3), nn.Linear(3, 2))


def flip(tensor: torch.Tensor) -> None:
    """Flip the lowest bit of the third entry."""
    part = tensor.detach()
    part = part.to_local() if isinstance(part, DTensor) else part
    part.view(-1).view(torch.int32)[2] ^= 1


def train(
    recorder: Recorder, model: nn.Module, optimizer: torch.optim.Optimizer, flipped: Callable[[], Any] | None = None
) -> Iterator[int]:
    """Train; ``flipped`` gives the tensor that this rank flips a bit of after an update."""
    dtype = next(model.parameters()).dtype
    for number in range(STEPS):
        with recorder.step():
            optimizer.zero_grad()
            model(torch.randn(6, 4, dtype=dtype)).square().mean().backward()
            optimizer.step()
            if number == FLIPPED_AT and flipped is not None:
                flip(flipped())
        yield number


def copies(culprit: int, *, of_optimizer: bool = False) -> Job:
    def job(recorder: Recorder, own: int) -> None:
        net = network()
        model = DistributedDataParallel(net, broadcast_buffers=False)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        recorder.watch_replicas(model, every=2, optimizer=optimizer if of_optimizer else None)

        def flipped() -> Any:
            weight = net[0].weight
            return optimizer.state[weight]["exp_avg"] if of_optimizer else weight

        list(train(recorder, model, optimizer, flipped if own == culprit else None))

    return job


def pair(recorder: Recorder, own: int) -> None:
    group = dist.new_group([0, 1])
    if own > 1:
        return
    net = network()
    model = DistributedDataParallel(net, process_group=group)
    recorder.watch_replicas(model, every=2)
    list(train(recorder, model, torch.optim.SGD(model.parameters(), lr=0.1), (lambda: net[0].weight) if own else None))


def clean(recorder: Recorder, own: int) -> None:
    """Accumulate gradients in bfloat16, with running statistics of each rank's own; rank 0 alone evaluates."""
    model = DistributedDataParallel(network().bfloat16(), broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    recorder.watch(model, every=3)
    recorder.watch_replicas(model, every=2, optimizer=optimizer)
    for number in range(12):
        with recorder.step(), model.no_sync() if number % 3 else nullcontext():
            model(torch.randn(6, 4, dtype=torch.bfloat16)).square().mean().backward()
            if number % 3 == 0:
                optimizer.step()
                optimizer.zero_grad()
        if own == 0 and number == 5:
            with recorder.phase("evaluation"), recorder.step():
                pass


def uneven(recorder: Recorder, own: int) -> None:
    model = DistributedDataParallel(network(), broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder.watch_replicas(model, every=1)
    for _ in range(3):
        with Join([model]):
            for _ in range(3 + own % 2):
                with recorder.step():
                    optimizer.zero_grad()
                    model(torch.randn(6, 4)).square().mean().backward()
                    optimizer.step()


def sharded(recorder: Recorder, own: int) -> None:
    net = network()
    fully_shard(net, mesh=init_device_mesh("cpu", (4,)))
    recorder.watch_replicas(net, every=2)
    list(train(recorder, net, torch.optim.SGD(net.parameters(), lr=0.1)))


def shards(recorder: Recorder, own: int) -> None:
    net = network()
    fully_shard(net, mesh=init_device_mesh("cpu", (4,)))
    recorder.watch(net, every=2)
    list(train(recorder, net, torch.optim.SGD(net.parameters(), lr=0.1)))


def hybrid(recorder: Recorder, own: int) -> None:
    net = network()
    fully_shard(net, mesh=init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))
    recorder.watch_replicas(net, every=2)
    weight = net[0].weight
    list(train(recorder, net, torch.optim.SGD(net.parameters(), lr=0.1), (lambda: weight) if own == 3 else None))


def hybrid_1(recorder: Recorder, own: int) -> None:
    groups = [dist.new_group(each) for each in ([0, 1], [2, 3], [0, 2], [1, 3])]
    model = FullyShardedDataParallel(
        network(),
        process_group=(groups[own // 2], groups[2 + own % 2]),
        sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    recorder.watch_replicas(model, every=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def flipped() -> Any:
        return next(each for each in model.parameters() if each.numel() > 2)

    list(train(recorder, model, optimizer, flipped if own == 3 else None))


def tensors(recorder: Recorder, own: int) -> None:
    """Hold a weight in parts over two ranks each, and a bias that all four have a copy of; no gradients are sent."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    model = nn.Linear(4, 8)
    model.weight = nn.Parameter(distribute_tensor(torch.zeros(8, 4), mesh, [Replicate(), Shard(0)]))
    model.bias = nn.Parameter(distribute_tensor(torch.zeros(8), mesh, [Replicate(), Replicate()]))
    recorder.watch_replicas(model, every=2)
    for number in range(STEPS):
        with recorder.step(), torch.no_grad():
            model.weight.to_local().add_(own % 2 + 1)
            model.bias.to_local().add_(1)
            if own == 1 and number == FLIPPED_AT:
                flip(model.bias)


def unkept(recorder: Recorder, own: int) -> None:
    model = DistributedDataParallel(network())
    recorder.watch_replicas(model, every=2)
    torch.manual_seed(own)
    with model.no_sync():
        list(train(recorder, model, torch.optim.SGD(model.parameters(), lr=0.1)))


def leaves(recorder: Recorder, own: int) -> None:
    model = network()
    recorder.watch_replicas(model, every=1, group=range(4))
    torch.manual_seed(1)
    for number in train(recorder, model, torch.optim.SGD(model.parameters(), lr=0.1)):
        if own == 3 and number == 4:
            return


def bare(recorder: Recorder, own: int) -> None:
    model = network()
    recorder.watch(model, every=2)
    torch.manual_seed(own)
    list(train(recorder, model, torch.optim.SGD(model.parameters(), lr=0.1)))


JOBS: dict[str, Job] = {
    "ddp": copies(2),
    "optimizer": copies(3, of_optimizer=True),
    "pair": pair,
    "clean": clean,
    "uneven": uneven,
    "sharded": sharded,
    "shards": shards,
    "hybrid": hybrid,
    "hybrid-1": hybrid_1,
    "tensors": tensors,
    "unkept": unkept,
    "leaves": leaves,
    "bare": bare,
}


def main() -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=world)
    for name in sys.argv[1:] or JOBS:
        recorder = Recorder(job=name, with_sampler=False)
        JOBS[name](recorder, rank)
        recorder.close()
        assert recorder.faults.newest == {}, (name, recorder.faults.newest)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
