"""One rank of a small job on the processor: ``python ranks.py ddp|broken|fsdp``, started by `test_ranks`."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn

from trainguard_collector.recorder.recorder import Recorder


def main(kind: str) -> None:
    """Train a few steps; of kind ``broken`` rank 1 changes its parameters at step 4."""
    torch.manual_seed(0)
    recorder = Recorder(with_sampler=False)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=world)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        model: nn.Module = net
    else:
        model = nn.parallel.DistributedDataParallel(net)
    recorder.watch(model, every=2, include_workers="all" if kind == "fsdp" else "one")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(8):
        with recorder.step():
            optimizer.zero_grad()
            loss = model(torch.randn(4, 4)).square().mean()
            loss.backward()
            optimizer.step()
            recorder.loss(loss)
            if kind == "broken" and number == 4 and dist.get_rank() == 1:
                with torch.no_grad():
                    net[0].weight[0, 0] += 1e-6
    recorder.close()
    assert recorder.faults.newest == {}, recorder.faults.newest
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
