"""Measures what the recorder costs the training thread: a part of ``make bench-collector``.

All figures are CPU time, which other programs on the machine hardly change: of the training thread for steps, of the
process for tensors. Torch has one thread. A sampler runs beside it. Tensors are saved every 4 steps
here, and the share is that of a saved step every 100 steps.
"""

import os
import statistics
import tempfile
import time
from typing import Any

import torch
from torch import nn

from trainguard_collector import Recorder

STEPS = 12_000
BLOCKS = 6
EVERY, SAVED_STEPS = 4, 6
LAYERS = 120


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
    """Return the microseconds a step with a model, its backward pass and its optimizer timed by hooks."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    x = torch.zeros(1, 2)

    def loop() -> float:
        began = time.thread_time()
        for _ in range(steps):
            model(x).sum().backward()
            optimizer.step()
        return time.thread_time() - began

    costs = []
    for _ in range(BLOCKS):
        bare = loop()
        recorder = Recorder()
        recorder.attach(model)
        timed = loop()
        recorder.close()
        costs.append((timed - bare) / steps * 1e6)
    return statistics.median(costs)


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


def tensor_share(width: int, batch: int) -> tuple[float, float, float]:
    """Return a step's milliseconds, the extra milliseconds of a saved step, and its share of 100 steps in percent."""
    model, criterion = Deep(width), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(batch, width), torch.randint(10, (batch,))
    recorder = Recorder()
    recorder.watch(model, every=EVERY)
    plain, saved = [], []
    for number in range(SAVED_STEPS * EVERY + 1):
        began = time.process_time()
        with recorder.step():
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            recorder.loss(loss)
        (plain if number % EVERY else saved).append(1e3 * (time.process_time() - began))
    assert not recorder.faults.newest, recorder.faults.newest
    recorder.close()
    step = statistics.median(plain)
    extra = statistics.median(saved[1:]) - step
    return step, extra, extra / step


def main() -> None:
    """Print the figures."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(
            TRAINGUARD_OUTPUT=f"{folder}/output", TRAINGUARD_SPOOL=f"{folder}/spool", TRAINGUARD_JOB="bench"
        )
        costs = [step_us(STEPS // BLOCKS) for _ in range(BLOCKS)]
        print(f"recorder, a step with three phases and a wait: {statistics.median(costs):.1f} µs (of {BLOCKS} runs)")
        print(f"model, backward and optimizer timed by hooks: {attached_us(500):.1f} µs a step")
        for width, batch in ((128, 64), (256, 64)):
            step, extra, share = tensor_share(width, batch)
            tensors = 4 * LAYERS + 2
            print(
                f"tensor recorder, {LAYERS} layers of {width} ({tensors} weights and biases, with gradients): a step "
                f"takes {step:.1f} ms, a saved one {extra:.1f} ms more; every 100 steps that is {share:.2f} %"
            )


if __name__ == "__main__":
    main()
