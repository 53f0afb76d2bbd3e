"""What ``kernels.json`` holds of two profiles beside each other. Times are whole nanoseconds, shares from 0 to 1."""

from typing import Literal

import msgspec

Change = Literal["came", "gone", "slower", "faster", "more_runs", "fewer_runs", "same"]


class ChangedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel or an operator in both profiles.

    change: ``slower`` and ``faster`` are of a run, beyond ``noise_ns``; ``more_runs`` and ``fewer_runs`` are of a step
        in which a run takes as long as before. ``same`` is what is within the noise, or a thousandth of a step.
    before_ns, after_ns: Time in as much work as `StepChange` says; None where that is not known.
    before_runs, after_runs: Runs in it; where it is not known in the windows.
    run_before_ns, run_after_ns: Mean of a run; None where there is none.
    noise_ns: By which two means of a run may differ without a cause.
    shapes: The inputs of an operator; empty of a kernel.
    """

    name: str
    change: Change
    before_ns: int | None
    after_ns: int | None
    before_runs: float
    after_runs: float
    run_before_ns: int | None
    run_after_ns: int | None
    noise_ns: int
    shapes: str = ""

    @property
    def delta_ns(self) -> int:
        """Of as much work; where that is not known of as many runs as the profile with fewer of them has."""
        if self.before_ns is not None and self.after_ns is not None:
            return self.after_ns - self.before_ns
        if self.run_before_ns is None or self.run_after_ns is None:
            return round(self.after_runs * (self.run_after_ns or 0) - self.before_runs * (self.run_before_ns or 0))
        return round((self.run_after_ns - self.run_before_ns) * min(self.before_runs, self.after_runs))


# By so much of it does a mean of all steps differ, for single ones to be named.
SINGLE_STEPS = 0.10


class StepChange(msgspec.Struct, frozen=True, kw_only=True):
    """As much work in both profiles: a typical step, see `TypicalStep`; without steps what the older window holds.

    after_ns: Without steps: the window by the share of the older one's runs of kernels that it holds.
    parts: The changes by what goes on; they add up to the whole change.
    noise_ns: By which both may differ without a cause: by the spread of the steps, or of those shares, and by 2 % at
        least; by 10 % where a profile has fewer than three steps.
    noise_known: Whether both profiles have three steps.
    mean_before_ns, mean_after_ns, mean_parts: The same of the mean of all steps, which a single long one moves.
    """

    before_ns: int
    after_ns: int
    parts: dict[str, int]
    noise_ns: int
    noise_known: bool
    mean_before_ns: int
    mean_after_ns: int
    mean_parts: dict[str, int]

    @property
    def single_steps(self) -> Literal["longer", "shorter", "same"]:
        """How the mean changed where the typical step did not: single steps, such as those that wait for data."""
        longer = self.mean_after_ns - self.mean_before_ns
        if self.change != "same" or abs(longer) <= SINGLE_STEPS * min(self.mean_before_ns, self.mean_after_ns):
            return "same"
        return "longer" if longer > 0 else "shorter"

    @property
    def change(self) -> Literal["slower", "faster", "same"]:
        longer = self.after_ns - self.before_ns
        if abs(longer) <= self.noise_ns:
            return "same"
        return "slower" if longer > 0 else "faster"


Aspect = Literal["gpu", "gpus", "ranks", "framework", "kernels", "shapes", "steps", "software", "recording"]


class KernelDifference(msgspec.Struct, frozen=True, kw_only=True):
    """What is not alike in two profiles, or not known of one of them.

    aspect: ``gpu`` is the model, ``gpus`` how many a trace has work of, ``ranks`` the ranks of the job; ``kernels`` is
        the share of kernel time in kernels that both have; ``shapes`` are an operator's inputs.
    name: The operator, the software or the option.
    before, after: Empty where the profile does not say it.
    """

    aspect: Aspect
    before: str
    after: str
    name: str = ""


class Comparability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether two profiles measure the same work on the same machine.

    verdict: ``no`` where the GPU, the framework, the kernels or the shapes are others; ``in_part`` where something else
        is, or a profile has fewer than three steps.
    unknown: What neither profile says.
    """

    verdict: Literal["yes", "in_part", "no"]
    differences: list[KernelDifference]
    unknown: list[Aspect]


class RankComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in both profiles.

    per: Of what times are: of a typical step; of the work of the older window where a profile has no steps.
    step: None where a profile has no work of a GPU; without steps also where less than half of its kernel time is in
        kernels that both have.
    before_busy, after_busy: The GPU's busy share of the window.
    kernels, operators: Largest change first.
    kernels_left_out, operators_left_out: Entries that the lists do not hold; ``kernels_left_out_ns`` is the change of
        those kernels together.
    """

    before_trace: str
    after_trace: str
    rank: int | None
    per: Literal["step", "window"]
    comparable: Comparability
    step: StepChange | None
    before_busy: float
    after_busy: float
    kernels: list[ChangedEntry]
    operators: list[ChangedEntry]
    kernels_left_out: int
    kernels_left_out_ns: int
    operators_left_out: int

    @property
    def change(self) -> Literal["slower", "faster", "same"]:
        return "same" if self.step is None else self.step.change

    @property
    def is_worse(self) -> bool:
        """Whether the same work takes longer."""
        if self.comparable.verdict == "no":
            return False
        return self.step is not None and (self.step.change == "slower" or self.step.single_steps == "longer")

    @property
    def worsened(self) -> float:
        """By how much of the older time it is longer; of the mean where single steps changed."""
        if self.step is None:
            return 0.0
        if self.step.single_steps != "same":
            return (self.step.mean_after_ns - self.step.mean_before_ns) / max(self.step.mean_before_ns, 1)
        return (self.step.after_ns - self.step.before_ns) / max(self.step.before_ns, 1)


class KernelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two profiles: ``before`` is the place of the other one. ``notes`` say what could not be compared."""

    before: str
    ranks: list[RankComparison]
    notes: list[str]
