"""Parts of ``kernels.json`` that describe several ranks, and two profiles."""

from typing import Literal

import msgspec

from trainguard.kernels.entries import Collective
from trainguard.kernels.rules.finding import KernelFinding


class RankLine(msgspec.Struct, frozen=True, kw_only=True):
    """One rank beside the others; times are means of a step, in nanoseconds.

    like: Ranks with the same number run the same kernels on the same GPU, and are compared with each other alone.
    step_ns: As ``gpu_duration_ns`` of its steps.
    compute_ns, communication_ns, exposed_communication_ns: Computation; collectives; collectives without computation.
    wait_ns: How much longer its collectives last than those of the rank that comes last into them; None where no
        collective is comparable.
    last_steps: Steps in which it comes last into the chosen collective.
    waits_ns: How long it waits in each of ``AcrossRanks.steps``; empty of a rank that is not compared.
    """

    rank: int | None
    trace: str
    like: int
    steps: int
    step_ns: int
    compute_ns: int
    communication_ns: int
    exposed_communication_ns: int
    wait_ns: int | None
    last_steps: int
    waits_ns: list[int] = []


class TransferEntry(Collective, frozen=True, kw_only=True):
    """A collective on several ranks, its time without the wait for the rank that comes last into it.

    ranks, steps: How many are compared.
    transfer_ns: Time on the rank that came last, of all steps: at most so long does the transfer take.
    wait_ns: How much longer it takes on the mean rank.
    bytes: What a rank sends or gets in these steps; None where a trace does not say it.
    algorithm_gb_per_s, bus_gb_per_s: At least so fast; see `CollectiveEntry`.
    """

    ranks: int
    steps: int
    transfer_ns: int
    wait_ns: int
    bytes: int | None
    algorithm_gb_per_s: float | None
    bus_gb_per_s: float | None


class AcrossRanks(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of a job beside each other.

    world_size: Ranks of the job, as the traces say it.
    missing: Ranks of the job without a trace, the first hundred; ``missing_count`` counts all.
    collective: The collective by which ranks are compared: the one whose time differs most; empty where there is none.
    compared_steps: Steps that all compared ranks recorded with the same runs of it.
    steps: Their numbers, the first fifty.
    transfers: Collectives that several like ranks ran, most time first, up to fifty.
    lines: By rank.
    findings: What fires across ranks.
    notes: What could not be compared, and why.
    """

    world_size: int | None
    missing: list[int]
    missing_count: int
    collective: str
    compared_steps: int
    lines: list[RankLine]
    findings: list[KernelFinding]
    notes: list[str]
    steps: list[int] = []
    transfers: list[TransferEntry] = []


Change = Literal["came", "gone", "slower", "faster", "same"]


class ChangedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel or an operator in both profiles; times are means of a step, in nanoseconds.

    ``shapes`` are the inputs of an operator; empty of a kernel.
    """

    name: str
    change: Change
    before_ns: int
    after_ns: int
    before_runs: float
    after_runs: float
    shapes: str = ""

    @property
    def delta_ns(self) -> int:
        return self.after_ns - self.before_ns


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step in both profiles; ``parts`` are the changes by what goes on, and add up to the change of the step."""

    before_ns: int
    after_ns: int
    parts: dict[str, int]


class RankComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in both profiles.

    per: What times are of: the mean step, or the window where a profile has no steps.
    step: None without steps in both.
    kernels, operators: Largest change first; what changes by less than 1 % of a step is ``same``.
    kernels_left_out, operators_left_out: Entries that the lists do not hold; ``kernels_left_out_ns`` is the change of
        those kernels together.
    """

    before_trace: str
    after_trace: str
    rank: int | None
    per: Literal["step", "window"]
    step: StepChange | None
    kernels: list[ChangedEntry]
    operators: list[ChangedEntry]
    kernels_left_out: int
    kernels_left_out_ns: int
    operators_left_out: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two profiles: ``before`` is the place of the other one. ``notes`` say what could not be compared."""

    before: str
    ranks: list[RankComparison]
    notes: list[str]
