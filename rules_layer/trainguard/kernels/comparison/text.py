"""Makes words of a comparison, for page and command: first whether there is one, then the difference and its causes."""

from collections.abc import Iterator, Mapping
from typing import get_args

from trainguard.core.units import counted
from trainguard.kernels.changes import (
    Aspect,
    Change,
    ChangedEntry,
    Comparability,
    KernelDifference,
    RankComparison,
    StepChange,
)
from trainguard.render.numbers import nanos, share, shown_name

PARTS: Mapping[str, str] = {
    "compute": "computation",
    "exposed_communication": "exposed communication",
    "memcpy": "copies",
    "memset": "memory set",
    "exposed_memory": "copies and memory set",
    "idle_loader": "idle, waiting for the data loader",
    "idle_host": "idle, waiting for the host",
    "idle_other": "idle otherwise",
}
CHANGES: Mapping[Change, str] = {each: each.replace("_", " ") for each in get_args(Change)}
_ASPECTS: Mapping[Aspect, str] = {
    "gpu": "GPU",
    "gpus": "number of GPUs",
    "ranks": "number of ranks",
    "framework": "framework",
    "kernels": "kernels",
    "shapes": "input shapes",
    "steps": "steps",
    "software": "software",
    "recording": "what is recorded",
}
_VERDICTS = {
    "in_part": "The two profiles can be compared in part",
    "no": "The two profiles do not measure the same work on the same machine",
}
_NAMED_PARTS, _NAMED_KERNELS = 3, 3
_LONGEST_NAME = 60


def comparable(found: Comparability) -> str:
    """Say whether the profiles can be compared, what differs, and what is not known."""
    unknown = f"Not known of both: {', '.join(_ASPECTS[each] for each in found.unknown)}." if found.unknown else ""
    if found.verdict == "yes":
        sure = "" if found.unknown else "The GPU, the software, the kernels and the input shapes are the same."
        return f"As far as they say, the two profiles can be compared. {unknown}{sure}"
    return f"{_VERDICTS[found.verdict]}: {'; '.join(map(_difference, found.differences))}. {unknown}".rstrip()


def _difference(found: KernelDifference) -> str:
    if found.aspect == "kernels":
        return f"{found.before} of the kernel time before, {found.after} now, is in kernels that both have"
    if found.aspect == "steps":
        counts = f"{counted(int(found.before), 'step')} before, {found.after} now"
        return f"{counts}, and three say how steps differ"
    what = found.name if found.aspect in ("software", "recording") else _ASPECTS[found.aspect]
    named = f" of {found.name}" if found.aspect == "shapes" else ""
    return f"{what}{named} {found.before or 'none'} before, {found.after or 'none'} now"


def headline(found: RankComparison) -> str:
    """Say how long a step, or as much work, takes, and whether that is more than noise."""
    if not (found.before_busy and found.after_busy):
        return "A profile has no work of a GPU, so nothing is compared."
    if found.step is None:
        return "How long as much work takes is not known: the profiles have no steps and too few kernels in common."
    step = found.step
    what = "A typical step takes" if found.per == "step" else "The work of the older window takes"
    took = f"{what} {nanos(step.after_ns)}, {nanos(step.before_ns)} before"
    floor = share(step.noise_ns / max(step.before_ns, step.after_ns, 1))
    if step.change == "same":
        few = "" if step.noise_known else ", as fewer than three steps say how they differ"
        return f"{took}: no difference above the noise of {floor}{few}.{_of_single_steps(found, step)}"
    return f"{took}: {share(abs(found.worsened))} {'more' if found.worsened > 0 else 'less'}, with noise of {floor}."


def _of_single_steps(found: RankComparison, step: StepChange) -> str:
    if found.per == "window" or step.single_steps == "same":
        return ""
    mean = f"The mean of all is {nanos(step.mean_after_ns)}, {nanos(step.mean_before_ns)} before"
    return f" {mean}: single steps are {step.single_steps}."


def causes(found: RankComparison) -> list[str]:
    """Say what the difference consists of, how busy the GPU is, and which kernels changed."""
    busy = f"The GPU is busy {share(found.after_busy)} of the window, {share(found.before_busy)} before."
    return [*_parts(found), busy, *_named(found)]


def _parts(found: RankComparison) -> Iterator[str]:
    step = found.step
    if step is None:
        return
    single = step.single_steps != "same"
    if single or step.change != "same":
        parts = step.mean_parts if single else step.parts
        largest = sorted(parts.items(), key=lambda part: -abs(part[1]))[:_NAMED_PARTS]
        shown = [f"{PARTS[name]} {signed(change)}" for name, change in largest if change]
        yield f"Of {'the mean' if single else 'it'}: {', '.join(shown)}."


def _named(found: RankComparison) -> Iterator[str]:
    for change, what in (("slower", "Slower a run"), ("faster", "Faster a run"), ("came", "Came"), ("gone", "Gone")):
        kernels = [each for each in found.kernels if each.change == change]
        if kernels:
            shown = "; ".join(_kernel(each) for each in kernels[:_NAMED_KERNELS])
            more = f"; and {len(kernels) - _NAMED_KERNELS:,} more" if len(kernels) > _NAMED_KERNELS else ""
            yield f"{what}: {shown}{more}."


def _kernel(entry: ChangedEntry) -> str:
    name = shown_name(entry.name, _LONGEST_NAME)
    before, after = entry.run_before_ns, entry.run_after_ns
    if before is None or after is None:
        return f"{name} ({nanos(after if before is None else before)} a run)"
    return f"{name} ({nanos(before)} to {nanos(after)}, {100.0 * (after - before) / max(before, 1):+.1f} %)"


def signed(ns: float) -> str:
    return f"+{nanos(ns)}" if ns > 0 else nanos(ns)
