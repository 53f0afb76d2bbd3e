"""Plants flipped bits in copies of tensors, and counts what the rule names: ``python -m tests.torch.flips 1000 10000``.

Ranks are simulated in one process; their hashes are made by the recorder's own part and judged by the rule. Clean
checks come with ranks that are missing, count steps otherwise, are of another attempt or hold other tensors.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from tests.support.steps import RULES, Run
from trainguard.rules.training.step_rule import Check
from trainguard_collector.recorder.process import Rank
from trainguard_collector.recorder.tensors.batch import StepBatch
from trainguard_collector.recorder.tensors.replicas import ReplicaWatch

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.float64, torch.uint8, torch.bool)
LEAST_FOUND = 0.999


class Copy:
    """One simulated rank: a model of tensors of many types, the state of its optimizer, and the recorder's part."""

    def __init__(self, rank: int, world: int, shapes: list[tuple[torch.dtype, tuple[int, ...]]]) -> None:
        self.model = nn.Module()
        self.states: dict[Any, dict[str, torch.Tensor]] = {}
        for number, (dtype, shape) in enumerate(shapes):
            tensor = torch.zeros(shape, dtype=dtype)
            if len(shape) == 4:
                tensor = tensor.contiguous(memory_format=torch.channels_last)
            parameter = nn.Parameter(tensor, requires_grad=False)
            self.model.register_parameter(f"part_{number}", parameter)
            self.states[parameter] = {"exp_avg": torch.zeros(shape), "step": torch.zeros(())}
        recorder: Any = SimpleNamespace(rank=Rank(rank, world))
        self.watch = ReplicaWatch(recorder, is_asked=True)
        optimizer = SimpleNamespace(state=self.states)
        self.watch.add(self.model, every=1, optimizer=optimizer, group=range(world))

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in self.model.named_parameters():
            yield f"Module_{name}", parameter
            for key, state in self.states[parameter].items():
                yield f"Module_{name}/{key}", state

    def train(self, seed: int) -> None:
        """Change all tensors, in the same way on each rank that is given the same number."""
        draw = torch.Generator().manual_seed(seed)
        for _, tensor in self.tensors():
            tensor.copy_(torch.randn(tensor.shape, generator=draw) * 40.0)

    def saved(self, mode_step: int) -> dict[str, Any]:
        batch = StepBatch(torch, step=mode_step, mode="TRAIN", mode_step=mode_step, at=0.0)
        self.watch.add_to(batch)
        return {name: tensor.numpy() for name, tensor in batch._full}


class Job:
    """Copies of one model on two to eight ranks, and a rule that is shown each check of them."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.world, self.step = draw, draw.choice((2, 3, 4, 4, 8)), 0
        sizes = [(), (1,), (3,), (64,), (33, 7), (4, 3, 3, 3), (129, 65), (5, 2, 7)]
        shapes = [(draw.choice(DTYPES), draw.choice(sizes)) for _ in range(draw.randint(2, 12))]
        self.copies = [Copy(rank, self.world, shapes) for rank in range(self.world)]
        self.rule = RULES["RanksOutOfSync"]
        self.state = self.rule.state_type()

    def check(self, saved: dict[int, dict[str, Any]]) -> Check | None:
        """Show the rule what ranks have saved at the next step; return its check of that."""
        tensors = {name: each for of in saved.values() for name, each in of.items()}
        step = Run().add(self.step, tensors)
        self.step += 1
        self.rule.observe(self.state, step, self.rule.parameters_type())  # type: ignore[arg-type]
        assert self.state.unusable == 0, self.state.unusable_why
        latest = self.state.latest
        return latest if latest is not None and latest.step == step.step else None

    def train(self) -> None:
        seed = self.draw.getrandbits(32)
        for each in self.copies:
            each.train(seed)

    def saved(self) -> dict[int, dict[str, Any]]:
        return {rank: each.saved(self.step) for rank, each in enumerate(self.copies)}

    def flip(self) -> str:
        """Flip a bit of a tensor of a rank; return what is wrong with what the rule says, empty where nothing is."""
        self.train()
        rank = self.draw.randrange(self.world)
        name, tensor = self.draw.choice(list(self.copies[rank].tensors()))
        flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.permute(0, 2, 3, 1).reshape(-1)
        bits = flat.view(torch.uint8)
        assert bits.data_ptr() == tensor.data_ptr()
        bits[self.draw.randrange(bits.numel())] ^= 1 << self.draw.randrange(8 if tensor.dtype != torch.bool else 1)
        check = self.check(self.saved())
        named: dict[str, list[Any]] = {"rank": [], "tensor": []}
        for fact in check.facts if check is not None else ():
            named.setdefault(fact.name, []).append(fact.value)
        expected = ("bits differ", [rank]) if self.world > 2 else ("no majority", [0, 1])
        if check is None or not check.fires:
            return "silent"
        if (check.kind, named["rank"]) != expected:
            return f"{check.kind}, of ranks {named['rank']}"
        return "" if named["tensor"] == [name] else "another tensor"

    def clean(self) -> str:
        """Check equal copies, of which one rank or more may be of another moment; return what fires."""
        self.train()
        saved, kind = self.saved(), self.draw.choice(CLEAN)
        others = self.draw.sample(range(self.world), self.draw.randint(1, self.world - 1))
        if kind == "missing":
            saved = {rank: each for rank, each in saved.items() if rank not in others}
        elif kind != "all":
            seed = self.draw.getrandbits(32)
            for rank in others:
                self.copies[rank].train(seed)
                of_rank = self.copies[rank].saved(self.step + (kind == "step"))
                saved[rank] = of_rank if kind == "step" else moved(kind, of_rank, rank)
        check = self.check(saved)
        return f"{check.kind} ({kind})" if check is not None and check.fires else ""


# What differs of some ranks; the last three begin a field of what a rank saves about its hashes.
CLEAN = ("all", "all", "all", "missing", "step", '"attempt": "', '"moment": [', '"at": ')


def moved(kind: str, saved: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return what a rank saves, with a digit more in front of a field: another attempt, place or time."""
    name = f"trainguard/replicas/{rank}/about"
    more = "7" if kind != '"moment": [' else "7" + (", " if b'"moment": []' not in saved[name].tobytes() else "")
    content = saved[name].tobytes().replace(kind.encode(), (kind + more).encode())
    return {**saved, name: torch.frombuffer(bytearray(content), dtype=torch.uint8).numpy()}


def main() -> None:
    flips, clean = (int(each) for each in (*sys.argv[1:], "1000", "10000")[:2])
    draw, began = random.Random(30), time.process_time()
    wrong: Counter[str] = Counter()
    for _ in range(flips):
        wrong[Job(draw).flip()] += 1
    false: Counter[str] = Counter()
    checks = 0
    while checks < clean:
        job = Job(draw)
        for _ in range(20):
            false[job.clean()] += 1
            checks += 1
    named, silent = wrong.pop("", 0), false.pop("", 0)
    sys.stdout.write(f"{named} of {flips} flips found and named {dict(wrong) or ''}\n")
    sys.stdout.write(f"{checks - silent} false of {checks} clean checks {dict(false) or ''}\n")
    sys.stdout.write(f"{time.process_time() - began:.0f} s of CPU time\n")
    if sum(wrong.values()) > (1.0 - LEAST_FOUND) * flips or false:
        sys.exit(1)


if __name__ == "__main__":
    main()
