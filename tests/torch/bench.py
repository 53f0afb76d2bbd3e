"""Measures what the recorder costs the training thread, and fails above its bounds: a part of ``make bench-collector``.

All figures are CPU time, which other programs on the machine hardly change: of the training thread for steps, of the
process for tensors. Torch has one thread.

Tensors: blocks of steps with the recorder and without it run by turns. The first saved step of a recorder, which finds
out names, is not timed. A block with the recorder has one saved step; what it takes more than the block without is the
cost of a saved step. The share is that of one saved step and of the recorder's hooks in 100 steps.

Launches are operators that start work on a GPU at a saved step, counted without one. A saved step alone is one of a
model that does nothing else: its CPU time is what later versions are held against. So is the host's time to start the
reductions of gradients and parameters on a device that does no work.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import ResNetConfig, ResNetForImageClassification

from tests.collector.bounds import Bound, of_median, of_value
from tests.torch.reduced import MOST_LAUNCHES, blocks, launched, on_device, resnet_50, start
from trainguard_collector.objects import objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.recorder.recorder import Recorder
from trainguard_collector.recorder.tensors.saving import OF_PARAMETERS
from trainguard_collector.spool import TENSORS

LAYERS = 120
INTERVAL = 100
EVERYTHING = ("gradients", "weights", "biases", "activations", "relu_input", "relu_output")
MOST_STEP_US, MOST_SHARE = 20.0, 1.0
# Each input and output of 480 modules in steps of 30 ms: `docs/recorder.md` says that this is above 1 %.
MOST_SHARE_OF_ALL = 2.0


def step_us(steps: int) -> float:
    """Return the microseconds of a step without work: a wait for a batch, three phases, and what writes the events."""
    recorder = Recorder()
    began = time.thread_time()
    for _ in recorder.wrap(range(steps)):
        with recorder.step():
            for name in ("forward", "backward", "optimizer"):
                with recorder.phase(name):
                    pass
    recorded = time.thread_time() - began
    began = time.thread_time()
    for _ in range(steps):
        for _name in ("forward", "backward", "optimizer"):
            pass
    bare = time.thread_time() - began
    assert not recorder.faults.newest, recorder.faults.newest
    dropped = recorder.log.dropped
    recorder.close()
    assert not dropped, dropped
    return (recorded - bare) / steps * 1e6


def attached_us(steps: int) -> float:
    """Return the microseconds that hooks on a model, its backward pass and its optimizer add to a step."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.zeros(1, 2)

    def loop() -> float:
        began = time.thread_time()
        for _ in range(steps):
            model(x).sum().backward()
            optimizer.step()
        return time.thread_time() - began

    bare = loop()
    recorder = Recorder()
    recorder.attach(model)
    timed = loop()
    recorder.close()
    return (timed - bare) / steps * 1e6


class Deep(nn.Module):
    """``LAYERS`` linear layers, each with a ReLU and a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU()) for _ in range(LAYERS)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> Any:
        """Return the logits."""
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


class Images(nn.Module):
    """ResNet-101 for pictures with 10 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.resnet = ResNetForImageClassification(ResNetConfig(depths=[3, 4, 23, 3], num_labels=10))

    def forward(self, x: torch.Tensor) -> Any:
        """Return the logits."""
        return self.resnet(x).logits


class Job(NamedTuple):
    """A model with its batch, and how it is measured: steps of a block, and pairs of blocks."""

    title: str
    model: nn.Module
    x: torch.Tensor
    steps: int
    pairs: int
    collections: tuple[str, ...] | None = None
    most: float = MOST_SHARE


def jobs() -> list[Job]:
    """Return what is measured: deep models whose step is short for their parameters, and one that people train."""
    deep = [(width, f"{LAYERS} layers of {width}, a batch of 64") for width in (128, 256)]
    pictures = "ResNet-101, a batch of 32 pictures of 32 by 32"
    return [
        *(Job(title, Deep(width), torch.randn(64, width), 4, 40) for width, title in deep),
        Job(f"{deep[0][1]}, all collections", Deep(128), torch.randn(64, 128), 4, 40, EVERYTHING, MOST_SHARE_OF_ALL),
        Job(pictures, Images(), torch.randn(32, 3, 32, 32), 2, 8),
        Job(f"{pictures}, all collections", Images(), torch.randn(32, 3, 32, 32), 2, 8, EVERYTHING),
    ]


class Cost(NamedTuple):
    """A pair of blocks, in seconds of CPU time."""

    bare_s: float
    recorded_s: float


def costs(job: Job, spool: Path) -> tuple[list[Cost], float]:
    """Return the pairs, and the milliseconds that the sampler takes to encode a saved step."""
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(job.model.parameters(), lr=1e-3)
    y = torch.randint(10, (len(job.x),))

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = criterion(job.model(job.x), y)
        loss.backward()
        optimizer.step()
        return loss

    def block(recorder: Recorder | None) -> float:
        began = time.process_time()
        for _ in range(job.steps):
            if recorder is None:
                step()
            else:
                with recorder.step():
                    recorder.loss(step())
        return time.process_time() - began

    def recorded() -> float:
        recorder = Recorder(with_sampler=False)
        recorder.watch(job.model, every=job.steps, collections=job.collections)
        with recorder.step():
            step()
        found = block(recorder)
        assert not recorder.faults.newest, recorder.faults.newest
        recorder.close()
        return found

    found, encoding_s = [], 0.0
    outgoing = Outgoing(objects_folder(str(spool), "bench", "node"), "bench", "node")
    for pair in range(job.pairs):
        first = recorded() if pair % 2 else block(None)
        second = block(None) if pair % 2 else recorded()
        found.append(Cost(second, first) if pair % 2 else Cost(first, second))
        began = time.process_time()
        outgoing.prepare(final=True)
        encoding_s += time.process_time() - began
        for _, path in outgoing.ready():
            path.unlink()
    assert outgoing.streams >= {"training"}, outgoing.faults
    return found[1:], 1e3 * encoding_s / job.pairs / 2


def tensor_bound(job: Job, spool: Path, hooks_s: float) -> Bound:
    """Measure a job, print what it takes, and return the share of 100 steps."""
    pairs, encoding_ms = costs(job, spool)
    unsaved_s = (INTERVAL - job.steps) * hooks_s
    shares = [
        100.0 * (pair.recorded_s - pair.bare_s + unsaved_s) / (INTERVAL * pair.bare_s / job.steps) for pair in pairs
    ]
    step_ms = 1e3 * statistics.median(pair.bare_s for pair in pairs) / job.steps
    saved_ms = 1e3 * statistics.median(pair.recorded_s - pair.bare_s for pair in pairs)
    tensors = len(list(job.model.parameters()))
    print(
        f"{job.title} ({tensors} weights and biases): a step takes {step_ms:.1f} ms, a saved one {saved_ms:.1f} ms "
        f"more, and {encoding_ms:.1f} ms of the sampler"
    )
    return of_median(f"tensors of {job.title}, every {INTERVAL} steps", "% of a step", shares, job.most)


class NoOptimizer(torch.optim.Optimizer):
    """Leaves parameters as they are."""

    def step(self, closure: Any = None) -> None:
        """Do nothing but call the hooks of all optimizers."""


def saved_ms(shapes: Iterable[tuple[int, ...]], steps: int = 15) -> float:
    """Return the milliseconds of the process in a step that saves, and does nothing else."""
    model = nn.Module()
    for place, shape in enumerate(shapes):
        model.register_parameter(f"weight_{place}", nn.Parameter(torch.randn(shape)))
    for each in model.parameters():
        each.grad = torch.randn_like(each)
    optimizer, recorder = NoOptimizer(model.parameters(), {"lr": 0.1}), Recorder(with_sampler=False)
    recorder.watch(model, every=1)
    taken = []
    for _ in range(steps):
        began = time.process_time()
        with recorder.step():
            optimizer.step()
        taken.append(1e3 * (time.process_time() - began))
        for path in Path(os.environ["TRAINGUARD_SPOOL"]).rglob(f"*{TENSORS}"):  # the sampler takes them at once
            path.unlink()
    assert not recorder.faults.newest, recorder.faults.newest
    recorder.close()
    return statistics.median(taken[2:])


def host_ms(shapes: Iterable[tuple[int, ...]], steps: int = 15) -> float:
    """Return the milliseconds of the host to start the reductions of gradients and parameters on a device."""
    tensors, taken = on_device(shapes), []
    for _ in range(steps):
        began = time.process_time()
        start(tensors)
        start(tensors, OF_PARAMETERS)
        taken.append(1e3 * (time.process_time() - began))
    return statistics.median(taken[2:])


def launch_bounds() -> list[Bound]:
    """Print what a saved step takes of models alone, and return the operators that it starts on a GPU."""
    found = []
    for name, shapes in {
        "ResNet-50": list(resnet_50()),
        **{f"60 blocks of Linear and LayerNorm of {width:,}": list(blocks(60, width)) for width in (1024, 256, 64)},
    }.items():
        print(f"a saved step of {name} alone: {saved_ms(shapes):.1f} ms; {host_ms(shapes):.1f} ms of a GPU's host")
        found.append(of_value(f"launches of {name}", "a saved step", 2 * launched(shapes).launches, MOST_LAUNCHES))
    return found


def repeated(measure: Callable[[], float], times: int) -> list[float]:
    """Return measurements after one that is not kept."""
    measure()
    return [measure() for _ in range(times)]


def main() -> int:
    """Print the figures; return 1 where a bound is broken."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        spool = Path(folder, "spool")
        os.environ.update(
            TRAINGUARD_OUTPUT=f"{folder}/output",
            TRAINGUARD_SPOOL=str(spool),
            TRAINGUARD_JOB="bench",
            TRAINGUARD_NODE="node",
        )
        steps = repeated(lambda: step_us(2_000), 25)
        found = [of_median("a step with three phases and a wait", "µs", steps, MOST_STEP_US)]
        hooks = repeated(lambda: attached_us(150), 60)
        found.append(of_median("model, backward pass and optimizer timed by hooks", "µs a step", hooks, MOST_STEP_US))
        hooks_s = (statistics.median(hooks) + found[0].median) / 1e6
        found += [tensor_bound(job, spool, hooks_s) for job in jobs()]
        found += launch_bounds()
    print(*found, sep="\n")
    return int(any(bound.is_broken for bound in found))


if __name__ == "__main__":
    sys.exit(main())
