"""What is said of partitioned GPUs (MIG), of which the instances are judged."""

from collections.abc import Callable, Mapping

from trainguard.rules.low_gpu_phrases import is_past, limit_of, time_of
from trainguard.rules.low_gpu_usage import Kind
from trainguard.rules.units import counted, show_duration, show_percent
from trainguard.rules.words import FactSheet, Words

_UNMEASURED = "; utilization is not measured, since its GPUs are partitioned (MIG)"


def _instances_low(sheet: FactSheet) -> Words:
    high, minutes = sheet["p95_sm_activity"], show_duration(sheet.number("low_time"))
    affected = int(sheet.number("gpus_affected"))
    more = f"; {affected} instances of {high.node} {'were' if is_past(sheet) else 'are'} low" if affected > 1 else ""
    leave, have = ("left", "had") if is_past(sheet) else ("leave", "have")
    return Words(
        f"{high.device} on {high.node}: for {minutes} 95 % of its minutes {have} an SM activity of at most "
        f"{limit_of(high)}{more}{_UNMEASURED}.",
        "Raise the batch size, fuse small kernels (torch.compile, CUDA graphs), or give the job a smaller instance "
        f"than {high.device} on {high.node}: its kernels {leave} {show_percent(100.0 - float(high.value))} of its "
        "multiprocessors unused.",
        f"instances of the partitioned GPUs of {high.node} were hardly used",
    )


def _instances_unused(sheet: FactSheet) -> Words:
    highest = sheet["highest_sm_activity"]
    lasted, least = time_of(sheet["low_time"]), show_percent(highest.threshold or 0.0)
    idle = f"for {lasted} the SM activity of each was below {least}"
    advice = f"Check whether the job hangs on {highest.node} or computes on the CPU, and stop it if it does."
    if is_past(sheet):
        advice = f"Find out why the job hung on {highest.node}, or computed on the CPU."
    return Words(
        f"no instance (MIG) of {highest.node} was used: {idle}{_UNMEASURED}.",
        advice,
        f"instances of the partitioned GPUs of {highest.node} were never used",
    )


def _instances_fine(sheet: FactSheet) -> Words:
    high = sheet["p95_sm_activity"]
    return Words(
        f"{high.device} on {high.node}, the least active of {counted(int(sheet.number('instances')), 'instance')}: the "
        f"95th percentile of its SM activity is {limit_of(high)}"
        f"{_UNMEASURED}."
    )


def _instances_warming_up(sheet: FactSheet) -> Words:
    seen = sheet["minutes_measured"]
    needed = counted(round(seen.threshold or 0.0), "minute")
    return Words(f"the instances (MIG) of {seen.node} have {seen.value} of {needed} with SM activity.")


def _instances_unknown(sheet: FactSheet) -> Words:
    node = sheet["instances"].node
    what = f"the GPUs of {node} are partitioned (MIG), so utilization is not measured."
    return Words(f"{what} SM activity of the instances, which stands in for it, was not collected.")


INSTANCE_WORDS: Mapping[str, Callable[[FactSheet], Words]] = {
    Kind.INSTANCES_UNUSED: _instances_unused,
    Kind.INSTANCES_LOW: _instances_low,
    Kind.INSTANCES_FINE: _instances_fine,
    Kind.INSTANCES_WARMING_UP: _instances_warming_up,
    Kind.INSTANCES_UNKNOWN: _instances_unknown,
}
