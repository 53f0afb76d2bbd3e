"""Words of a plan, from its typed facts."""

from trainguard.core.timestamps import iso_time
from trainguard.core.units import show_duration, show_money, show_number, show_share
from trainguard.planning.cluster import Cluster, machines_of
from trainguard.planning.document import Assumed, Assumption, FinishForecast, Lack, Lacking, PlannedRow, Range

_ASSUMED = {
    Assumed.SAME_SAMPLES: "The batch of all GPUs together stays: with more GPUs, each has fewer samples in a step.",
    Assumed.CONVERGES_ALIKE: "The number of samples that the training needs stays, so larger batches make fewer steps. "
    "Whether the loss falls as well with such batches is not forecast.",
    Assumed.SCALING: "A GPU's time for a step grows with its samples to the power of {value:.2f}, as in MLPerf "
    "Training 5.0 (docs/plan.md).",
    Assumed.NO_TRACE: "No trace has collectives of this job: a step grows with the number of GPUs to the power of "
    "{value:.3f}, as in MLPerf Training 5.0.",
    Assumed.COLLECTIVES: "{value:.0f} collectives of the trace keep their sizes, over links and networks of the "
    "makers' speeds. Computation hides as much of them as before.",
    Assumed.LINKS_UNKNOWN: "How fast GPUs or nodes are connected is unknown on one side: collectives keep their speed.",
    Assumed.OTHER_GPU: "On other GPUs kernels are as much faster as arithmetic ({name}) and memory are, in their "
    "geometric mean.",
    Assumed.FITS_MEMORY: "Model and batch fit into the GPUs' memory.",
    Assumed.LOADERS_PER_NODE: "Each node loads its own data, as fast as now.",
    Assumed.NOT_REPEATED: "Restarts, hangs and ruined training ({duration}) do not happen again.",
    Assumed.UNSAMPLED: "The time without samples ({duration}) was like the rest.",
    Assumed.WHOLE_JOB: "The rest of the steps are like those until now: all are {value:.2f} times as many.",
    Assumed.PRICES: "Prices are on demand: {name}.",
}
_MISSING = {
    Lacking.GPU_TIME: "No GPU metrics: all of the job's time counts as training steps.",
    Lacking.TIME: "The job's time is unknown: nothing can be planned. Its profile, or scalars with "
    "times, would say it.",
    Lacking.INSTANCE_TYPE: "The job's instance type is unknown: give --ran-on TYPE for costs and other types.",
    Lacking.PRICE: "No price of {name} is known: give --prices FILE for its cost.",
    Lacking.GPUS_OF_TYPE: "How many GPUs {name} has is unknown: it is left out.",
    Lacking.PEAKS: "What the GPUs of {name}, or those of the job, can do is unknown: it is left out.",
    Lacking.BATCH: "The batch of a GPU is unknown: give --batch-per-gpu OLD:NEW.",
    Lacking.TRACE: "No kernel trace: how much of a step is communication, and waits for the host, is unknown.",
    Lacking.TOTAL_STEPS: "How many steps the job will take is unknown: give --total-steps N for its end.",
    Lacking.TIMED_STEPS: "When steps were done is unknown: the end cannot be forecast.",
    Lacking.TOO_FEW_STEPS: "Too few steps were done since the start: the end cannot be forecast yet.",
    Lacking.STEPS_LEFT: "No step is left: there is no end to forecast.",
    Lacking.TOO_UNLIKE: "{name} has more than 64 times, or less than a 64th, of the job's GPUs or batch of a GPU, and "
    "no published result says how that scales: it is left out.",
    Lacking.NO_SAMPLE: "{name} has more GPUs than a step has samples, as the batch of all GPUs stays: it is left out.",
}

# From here on a cost is a factor, not a percentage.
_MANY_TIMES = 3.0


def assumed(each: Assumption) -> str:
    value = each.value or 0.0
    return _ASSUMED[each.kind].format(value=value, name=each.name, duration=show_duration(value))


def lacking(each: Lack) -> str:
    return _MISSING[each.kind].format(name=each.name)


def title_of(row: PlannedRow) -> str:
    """Return the machines of a row, and its batch where that is another one."""
    machines = machines_of(Cluster(row.nodes, row.gpus, row.instance_type))
    return machines if row.batch_factor == 1.0 else f"{machines}, {row.batch_factor:.3g} x the batch of a GPU"


def said_row(row: PlannedRow) -> str:
    """Return how the job would be: ``2 nodes: 1.9 x faster (1.7 to 2.1 x), as dear (9 % cheaper to 8 % dearer)``."""
    if row.faster.value == 1.0 and (row.dearer is None or row.dearer.value == 1.0):
        return f"{title_of(row)}: as the job is."
    parts = [said_speed(row.faster)]
    if row.dearer is not None:
        parts.append(said_cost(row.dearer))
    return f"{title_of(row)}: {', '.join(parts)}."


def said_speed(faster: Range) -> str:
    """Return the factor with its interval: ``1.8 x faster (1.6 to 2.1 x)``."""
    is_faster = faster.value >= 1.0
    values = (faster.value, faster.low, faster.high) if is_faster else (
        1.0 / faster.value, 1.0 / faster.high, 1.0 / faster.low
    )  # fmt: skip
    value, low, high = (f"{each:.1f}" for each in values)
    said = "as fast" if value == "1.0" else f"{value} x {'faster' if is_faster else 'slower'}"
    return said if low == high else f"{said} ({low} to {high} x)"


def said_cost(dearer: Range) -> str:
    """Return the change of the cost with its interval: ``9 % dearer (3 % cheaper to 22 % dearer)``."""
    value, low, high = map(_cost, (dearer.value, dearer.low, dearer.high))
    return value if low == high else f"{value} ({low} to {high})"


def _cost(factor: float) -> str:
    if factor >= _MANY_TIMES:
        return f"{factor:,.1f} x as dear"
    percent = f"{abs(100.0 * (factor - 1.0)):.0f}"
    return "as dear" if percent == "0" else f"{percent} % {'dearer' if factor > 1.0 else 'cheaper'}"


def shown_times(seconds: Range) -> str:
    if seconds.low == seconds.high:
        return show_duration(seconds.value)
    return f"{show_duration(seconds.value)} ({show_duration(seconds.low)} to {show_duration(seconds.high)})"


def shown_costs(cost: Range | None, currency: str) -> str:
    if cost is None:
        return "-"
    middle, low, high = (show_money(each, currency) for each in (cost.value, cost.low, cost.high))
    return middle if cost.low == cost.high else f"{middle} ({low} to {high.removeprefix(f'{currency} ')})"


def said_finish(finish: FinishForecast) -> str:
    """Return when the job ends, and whether it misses its limit."""
    done = show_share(finish.done / finish.total)
    said = (
        f"{finish.done:,} of {finish.total:,} steps ({done}) were done at {iso_time(finish.at)}. The last one is "
        f"forecast for {iso_time(finish.end.value)}, with 80 % from {iso_time(finish.end.low)} to "
        f"{iso_time(finish.end.high)}."
    )
    if finish.limit_at is None:
        return said
    if finish.limit_at < finish.at:
        return f"{said} Its time limit was at {iso_time(finish.limit_at)}, and the job ran on."
    late_s = finish.end.value - finish.limit_at
    if finish.misses_limit:
        return f"{said} The time limit ends it at {iso_time(finish.limit_at)}, {show_duration(late_s)} before that."
    return f"{said} Its time limit is at {iso_time(finish.limit_at)}."


def shown_factor(found: Range) -> str:
    middle, low, high = (
        show_number(each) if each >= 10.0 else f"{each:.2f}" for each in (found.value, found.low, found.high)
    )
    return f"{middle} x" if found.low == found.high else f"{middle} x ({low} to {high})"
