"""Words of a plan, from its typed facts."""

from trainguard.core.timestamps import iso_time
from trainguard.core.units import counted, show_duration, show_money, show_number, show_share
from trainguard.planning.document import Assumed, Assumption, FinishForecast, Lack, Lacking, PlannedRow, Range

_ASSUMED = {
    Assumed.SAME_SAMPLES: "The batch of all GPUs together stays: with more GPUs, each has fewer samples in a step.",
    Assumed.CONVERGES_ALIKE: "The number of samples that the training needs stays, so larger batches make fewer steps. "
    "Whether the loss falls as well with such batches is not forecast.",
    Assumed.SCALING: "A GPU's time for a step grows with its samples to the power of {value:.2f}, as in MLPerf "
    "Training 5.0 (docs/plan.md).",
    Assumed.NO_TRACE: "No trace has collectives of this job: communication grows with the GPUs to the power of "
    "{value:.2f}, as in MLPerf Training 5.0.",
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
}


def assumed(each: Assumption) -> str:
    value = each.value or 0.0
    return _ASSUMED[each.kind].format(value=value, name=each.name, duration=show_duration(value))


def lacking(each: Lack) -> str:
    return _MISSING[each.kind].format(name=each.name)


def title_of(row: PlannedRow) -> str:
    """Return the machines of a row, and its batch where that is another one."""
    machines = f"{row.nodes} x {row.instance_type}" if row.instance_type else counted(row.nodes, "node")
    return machines if row.batch_factor == 1.0 else f"{machines}, {row.batch_factor:.3g} x the batch of a GPU"


def said_row(row: PlannedRow) -> str:
    """Return how the job would be: ``2 nodes: 1.9 x faster, 5 % dearer``."""
    if row.faster.value == 1.0 and (row.dearer is None or row.dearer.value == 1.0):
        return f"{title_of(row)}: as the job is."
    parts = [said_speed(row.faster)]
    if row.dearer is not None:
        parts.append(said_cost(row.dearer))
    return f"{title_of(row)}: {', '.join(parts)}."


def said_speed(faster: Range) -> str:
    value, word = (faster.value, "faster") if faster.value >= 1.0 else (1.0 / faster.value, "slower")
    return f"{value:.1f} x {word}" if f"{value:.1f}" != "1.0" else "as fast"


def said_cost(dearer: Range) -> str:
    percent = f"{abs(100.0 * (dearer.value - 1.0)):.0f}"
    return "as dear" if percent == "0" else f"{percent} % {'dearer' if dearer.value > 1.0 else 'cheaper'}"


def shown_times(seconds: Range) -> str:
    if seconds.low == seconds.high:
        return show_duration(seconds.value)
    return f"{show_duration(seconds.value)} ({show_duration(seconds.low)} to {show_duration(seconds.high)})"


def shown_costs(cost: Range | None, currency: str) -> str:
    if cost is None:
        return "-"
    middle = show_money(cost.value, currency)
    return middle if cost.low == cost.high else f"{middle} ({cost.low:,.2f} to {cost.high:,.2f})"


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
    late_s = finish.end.value - finish.limit_at
    if finish.misses_limit:
        return f"{said} The time limit ends it at {iso_time(finish.limit_at)}, {show_duration(late_s)} before that."
    return f"{said} Its time limit is at {iso_time(finish.limit_at)}."


def shown_factor(found: Range) -> str:
    middle = show_number(found.value) if found.value >= 10 else f"{found.value:.2f}"
    return f"{middle} x" if found.low == found.high else f"{middle} x ({found.low:.2f} to {found.high:.2f})"
