"""Parallel jobs whose steps are simulated operation by operation, with planted faults; no code of the replay's."""

import csv
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

import numpy as np

# Kind, step, rank and number within its kind.
Key = tuple[str, int, int, int]


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault: ``times`` as long are passes of a rank, host, copy, stage or some batches, or some transfers."""

    kind: Literal["rank", "host", "copy", "stage", "sequences", "transfers"]
    times: float = 1.5
    at: int = 0
    # In which steps: all, every second one.
    every: int = 1


@dataclass(frozen=True, slots=True)
class Job:
    stages: int = 4
    copies: int = 4
    batches: int = 8
    steps: int = 6
    chunks: int = 1
    schedule: Literal["1F1B", "GPipe"] = "1F1B"
    jitter: float = 0.01
    seed: int = 0
    planted: tuple[Planted, ...] = ()
    ranks_of_host: int = 2
    overlapping: bool = False
    transfer_s: float = 0.0005
    rows: list[dict[str, Any]] = field(default_factory=list, init=False)

    @property
    def ranks(self) -> int:
        return self.stages * self.copies

    def healthy(self) -> "Job":
        return replace(self, planted=())

    def step_s(self) -> float:
        """Simulate all steps; return the seconds of the mean one."""
        self.rows.clear()
        return float(np.mean([self._step(step) for step in range(self.steps)]))

    def csv(self, columns: Mapping[str, str] | None = None) -> bytes:
        """Return the rows as CSV; ``columns`` renames some, and leaves out those it names as empty."""
        if not self.rows:
            self.step_s()
        names = {name: (columns or {}).get(name, name) for name in self.rows[0]}
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([to for to in names.values() if to])
        writer.writerows([row[name] for name, to in names.items() if to] for row in self.rows)
        return text.getvalue().encode()

    def order(self, stage: int) -> list[tuple[bool, int, int]]:
        """Return the passes of a rank: whether each is forward, its micro-batch and its part of the model."""
        every = range(self.batches)
        if self.schedule == "GPipe" or self.chunks > 1:
            forward = [(True, batch, chunk) for chunk in range(self.chunks) for batch in every]
            return forward + [(False, batch, chunk) for chunk in reversed(range(self.chunks)) for batch in every]
        ahead = min(self.stages - stage - 1, self.batches)
        found = [(True, batch, 0) for batch in range(ahead)]
        for batch in range(ahead, self.batches):
            found += [(True, batch, 0), (False, batch - ahead, 0)]
        return found + [(False, batch, 0) for batch in range(self.batches - ahead, self.batches)]

    def _step(self, step: int) -> float:
        one = _Step(self, step, np.random.default_rng([self.seed, step]))
        end = one.run()
        self.rows.extend(one.rows)
        return end


class _Step:
    """One step. A pass is named by copy, stage, direction, micro-batch and part of the model."""

    def __init__(self, job: Job, step: int, random: np.random.Generator) -> None:
        self.job, self.step = job, step
        self.rows: list[dict[str, Any]] = []
        shape = (job.copies, job.stages, job.chunks, 2, job.batches)
        self.noise = 1 + job.jitter * random.standard_normal(shape)
        self.network = 1 + job.jitter * random.random(shape)
        self.lengths = random.pareto(2.5, (job.copies, job.batches))
        self.slow_links = random.random(shape) < 0.3
        self.pass_end = cache(self._pass_end)
        self.message_end = cache(self._message_end)
        self.before = cache(self._before)
        self.orders = [job.order(stage) for stage in range(job.stages)]

    def lasts(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> float:
        found = (0.01 if forward else 0.02) * self.noise[copy, stage, chunk, int(forward), batch]
        for each in (each for each in self.job.planted if self.step % each.every == 0):
            rank = stage * self.job.copies + copy
            if each.kind == "sequences":
                found *= 1 + (each.times - 1) * self.lengths[copy, batch]
            elif each.at == {"rank": rank, "host": rank // self.job.ranks_of_host, "copy": copy, "stage": stage}.get(
                each.kind, -1
            ):
                found *= each.times
        return float(found)

    def transfer(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> float:
        found = self.job.transfer_s * self.network[copy, stage, chunk, int(forward), batch]
        for each in self.job.planted:
            if each.kind == "transfers" and self.slow_links[copy, stage, chunk, int(forward), batch]:
                found *= each.times
        return float(found)

    def gather_end(self, copy: int, stage: int) -> float:
        return 0.002

    def _before(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> tuple[float, float]:
        """Return when the rank's previous pass ends, and its previous one of the same direction."""
        order = self.orders[stage]
        at = order.index((forward, batch, chunk))
        same = [each for each in order[:at] if each[0] == forward]
        previous = self.pass_end(copy, stage, *order[at - 1]) if at else 0.0
        return previous, self.pass_end(copy, stage, *same[-1]) if same else 0.0

    def sender(self, stage: int, forward: bool, chunk: int) -> tuple[int, int] | None:
        """Return the stage and chunk that a pass gets its message from; None at the ends of the model."""
        whole = chunk * self.job.stages + stage + (-1 if forward else 1)
        if not 0 <= whole < self.job.stages * self.job.chunks:
            return None
        return whole % self.job.stages, whole // self.job.stages

    def _pass_end(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> float:
        return self.pass_start(copy, stage, forward, batch, chunk) + self.lasts(copy, stage, forward, batch, chunk)

    def pass_start(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> float:
        ready, _ = self.before(copy, stage, forward, batch, chunk)
        if self.orders[stage][0] == (forward, batch, chunk):
            ready = max(ready, self.gather_end(copy, stage))
        if self.sender(stage, forward, chunk) is not None:
            ready = max(ready, self.message_end(copy, stage, forward, batch, chunk)[2])
        return ready

    def _message_end(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> tuple[float, float, float]:
        """Return when a message is sent, when its receive is posted, and when it is there."""
        sender = self.sender(stage, forward, chunk)
        assert sender is not None
        sent = self.pass_end(copy, sender[0], forward, batch, sender[1])
        posted = self.before(copy, stage, forward, batch, chunk)[1]
        return sent, posted, max(sent, posted) + self.transfer(copy, stage, forward, batch, chunk)

    def run(self) -> float:
        job = self.job
        ends: dict[tuple[int, int], float] = {}
        for copy in range(job.copies):
            for stage in range(job.stages):
                self.add(copy, stage, "params-all-gather", 0.0, 0.002)
                for each in self.orders[stage]:
                    self._add_pass(copy, stage, *each)
                last = self.pass_end(copy, stage, *self.orders[stage][-1])
                if job.overlapping:
                    last = max(last, self.scattered(copy, stage))
                ends[copy, stage] = self.add(copy, stage, "layernorm-grads-all-reduce", last, 0.0002)
        self._together(ends, "embedding-grads-all-reduce", 0.001, lambda copy, _: copy, {0, job.stages - 1})
        last_exchange = "separate-grads-all-reduce" if job.overlapping else "grads-reduce-scatter"
        self._together(ends, last_exchange, 0.004, lambda _, stage: stage)
        self._together(ends, "optimizer-clip-main-grad", 0.0005, lambda *_: 0)
        last = max(self.add(*place, "optimizer", end, 0.003) for place, end in ends.items())
        self._number()
        return last

    def scattered(self, copy: int, stage: int) -> float:
        """Add the reductions of gradients that run beside the passes; return when the last of them ends."""
        ready = [0.0] * self.job.copies
        for chunk in reversed(range(self.job.chunks)):
            for each in range(self.job.copies):
                of_chunk = [at for at in self.orders[stage] if not at[0] and at[2] == chunk]
                ready[each] = max(ready[each], self.pass_end(each, stage, *of_chunk[-1]))
            end = max(ready) + 0.006
            self.add(copy, stage, "grads-reduce-scatter", ready[copy], end - ready[copy], chunk=chunk)
            ready = [end] * self.job.copies
        return end

    def _add_pass(self, copy: int, stage: int, forward: bool, batch: int, chunk: int) -> None:
        direction = "forward" if forward else "backward"
        self.add(
            copy,
            stage,
            f"{direction}-compute",
            self.pass_start(copy, stage, forward, batch, chunk),
            self.lasts(copy, stage, forward, batch, chunk),
            batch=batch,
            chunk=chunk,
        )
        sender = self.sender(stage, forward, chunk)
        if sender is not None:
            sent, posted, end = self.message_end(copy, stage, forward, batch, chunk)
            self.add(copy, sender[0], f"{direction}-send", sent, end - sent)
            self.add(copy, stage, f"{direction}-recv", posted, end - posted)

    def _together(
        self,
        ends: dict[tuple[int, int], float],
        kind: str,
        lasts: float,
        group: Callable[[int, int], int],
        stages: set[int] | None = None,
    ) -> None:
        members = [each for each in ends if stages is None or each[1] in stages]
        starts: dict[int, float] = {}
        for copy, stage in members:
            number = group(copy, stage)
            starts[number] = max(starts.get(number, 0.0), ends[copy, stage])
        for copy, stage in members:
            end = starts[group(copy, stage)] + lasts
            self.add(copy, stage, kind, ends[copy, stage], end - ends[copy, stage])
            ends[copy, stage] = end

    def add(
        self, copy: int, stage: int, kind: str, start: float, lasts: float, batch: int = -1, chunk: int = -1
    ) -> float:
        rank = stage * self.job.copies + copy
        whole = chunk * self.job.stages + stage if chunk >= 0 else -1
        self.rows.append(
            {
                "dp_rank": copy,
                "stage": stage,
                "rank": rank,
                "step": 10 + self.step,
                "optype": kind,
                "start_ts": start,
                "duration": lasts,
                "seq_id": 0,
                "mc": chunk,
                "mb_id": batch,
                "gmc": whole,
                "host": f"host-{rank // self.job.ranks_of_host}",
            }
        )
        return start + lasts

    def _number(self) -> None:
        counts: dict[tuple[int, str], int] = {}
        for row in sorted(self.rows, key=lambda row: row["start_ts"]):
            key = row["rank"], row["optype"]
            row["seq_id"] = counts.get(key, 0)
            counts[key] = row["seq_id"] + 1
