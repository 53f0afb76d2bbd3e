"""The words of Dataloader."""

from collections.abc import Mapping
from enum import StrEnum

from trainguard.core.units import counted, show_duration, show_number, show_percent
from trainguard.rules.rule_result import FactSheet, Text, Words

BUSY_PERCENT = 70.0
"""GPUs that are as busy hardly wait for data."""


class DataloaderKind(StrEnum):
    WAITS = "waits_for_batches"
    """The training processes wait for batches in a good part of their loop, and the GPUs are idle in that time."""

    BETWEEN_STEPS = "between_steps"
    """No loader events, and no step runs in a good part of the loop, in which the GPUs idle."""

    TOO_FEW = "too_few"
    TOO_MANY = "too_many"
    FITS = "fits"
    LITTLE_LOST = "little_lost"
    """Too few or too many, and hardly anything waits for them."""

    TOO_EARLY = "too_early"
    WARMING_UP = "warming_up"
    NO_CORES = "no_cores"
    TENSORFLOW = "tensorflow"
    NO_LOADERS = "no_loaders"
    NO_EVENTS = "no_events"
    NO_FRAMEWORK_METRICS = "no_framework_metrics"


_FIXED = {
    DataloaderKind.NO_LOADERS: (
        "The job's framework metrics have no data loader events: it uses no loader that writes them."
    ),
    DataloaderKind.NO_EVENTS: "No framework event was seen.",
    DataloaderKind.NO_FRAMEWORK_METRICS: "The job writes no framework metrics, so its data loaders are unknown.",
}


def text(sheet: FactSheet) -> Words:
    kind = DataloaderKind(sheet.kind)
    if kind in _FIXED:
        return Words(_FIXED[kind])
    return _TEXTS.get(kind, _of_number)(sheet)


def _of_gaps(sheet: FactSheet) -> Words:
    between, used = sheet["between_steps_share"], sheet["mean_utilization"]
    share = show_percent(100.0 * float(between.value))
    return Words(
        f"No step of the training processes of {between.node} ran in {share} of their loop, and the GPUs that it uses "
        f"were {show_percent(float(used.value))} busy in the loop. No event says what ran between the steps.",
        "Look between the steps: load batches ahead of time, with more data loader workers and prefetching, and log, "
        "evaluate and write checkpoints less often. Data loader events, which the recorder writes, say which it is.",
        f"no step ran in {share} of the training loop, where batches are loaded",
    )


def _of_number(sheet: FactSheet) -> Words:
    kind, reason = DataloaderKind(sheet.kind), _number(sheet)
    if kind is DataloaderKind.TOO_EARLY:
        after = sheet.duration("judged_after")
        return Words(f"{reason} Whether the training waits for them is judged {after} after the start.")
    if kind is DataloaderKind.LITTLE_LOST:
        return Words(f"{reason} That matters little: {_shares(sheet)}.")
    if kind is DataloaderKind.FITS:
        return Words(reason)
    few = kind is DataloaderKind.TOO_FEW
    shares = _shares(sheet)
    said = f" {shares[0].upper()}{shares[1:]}." if shares else ""
    clause = f"there were too {'few' if few else 'many'} data loader processes for the cores"
    return Words(f"{reason}{said}", _advice_on_number(sheet, few=few), clause)


def _of_tensorflow(sheet: FactSheet) -> Words:
    prefetches = bool(sheet.number("prefetch"))
    return Words(
        "The job loads data with TensorFlow, in threads of the training process: there are no loader processes to "
        f"count; its pipeline {'prefetches' if prefetches else 'does not prefetch'}.",
        None if prefetches else "End the tf.data pipeline with prefetch(tf.data.AUTOTUNE).",
    )


def _progress(sheet: FactSheet) -> str:
    seconds = sheet["seconds"]
    needed = counted(int(seconds.threshold or 0), "second")
    return f"{seconds.node} has {seconds.value:,} of the more than {needed} with loader events that a verdict needs."


def _number(sheet: FactSheet) -> str:
    loaders, cores = sheet["loaders"], sheet.count("cores")
    processes = sheet.count("training_processes")
    of = f" of {processes} training processes" if processes > 1 else ""
    limits = [each for each in (sheet.get("min_threshold"), sheet.get("max_threshold")) if each is not None]
    shown = ", ".join(f"{each.name} {show_percent(float(each.value))}" for each in limits)
    return (
        f"{loaders.node} {'had' if sheet.past else 'has'} {show_number(float(loaders.value))} loader "
        f"process{'' if loaders.value == 1 else 'es'}{of} for {counted(cores, 'core')}: "
        f"{sheet.percent('loaders_of_cores')}{f' ({shown})' if shown else ''}."
    )


def _waits(sheet: FactSheet) -> str:
    waited, used = sheet["waiting_share"], sheet["mean_utilization"]
    return (
        f"The training processes of {waited.node} waited for batches in {show_percent(100.0 * float(waited.value))} of "
        f"their loop, and the GPUs that it uses were {show_percent(float(used.value))} busy in that time."
    )


def _shares(sheet: FactSheet) -> str:
    waited, used = sheet.get("waiting_share"), sheet.get("mean_utilization")
    said = []
    if waited is not None:
        said.append(f"the training processes waited for batches in {show_percent(100.0 * float(waited.value))} of it")
    if used is not None:
        said.append(f"the GPUs that {used.node} uses were {show_percent(float(used.value))} busy")
    return f"in the training loop {' and '.join(said)}" if said else ""


def _advice_on_waits(sheet: FactSheet) -> str:
    cheaper = "make batches cheaper to load: decode and resize ahead, keep them on a disk of the node"
    fetch = sheet.get("fetch_time")
    takes = "" if fetch is None else f" (a worker takes {show_duration(float(fetch.value))} for one, by the median)"
    if sheet.number("loaders") < sheet.number("workers_advised") * sheet.number("training_processes"):
        return f"{_workers(sheet, 'Raise')}, or {cheaper}{takes}{_settings(sheet)}."
    return f"{cheaper[0].upper()}{cheaper[1:]}{takes}: there is a loader process for each core{_settings(sheet)}."


def _advice_on_number(sheet: FactSheet, *, few: bool) -> str:
    advice = f"{_workers(sheet, 'Raise' if few else 'Lower')}{_settings(sheet)}"
    used = sheet.get("mean_utilization")
    if used is not None and float(used.value) >= BUSY_PERCENT:
        busy = show_percent(float(used.value))
        advice += f"; the GPUs that {used.node} uses were {busy} busy all the same, so expect little of it"
    return f"{advice}."


def _workers(sheet: FactSheet, verb: str) -> str:
    declared, processes = sheet.get("num_workers"), sheet.count("training_processes")
    now = "" if declared is None else f" from {declared.value}"
    each = f" in each of the {processes} training processes" if processes > 1 else ""
    target, cores = sheet.count("workers_advised"), sheet.count("cores")
    return f"{verb} num_workers{now} to about {target}{each}, one loader process a core of {cores}"


def _settings(sheet: FactSheet) -> str:
    unpinned = "; set pin_memory=True, which is off" if sheet.get("pin_memory") is not None else ""
    prefetch = sheet.get("prefetch")
    ahead = "; end the tf.data pipeline with prefetch(tf.data.AUTOTUNE)" if prefetch is not None else ""
    return f"{unpinned}{ahead}"


_TEXTS: Mapping[DataloaderKind, Text] = {
    DataloaderKind.TENSORFLOW: _of_tensorflow,
    DataloaderKind.NO_CORES: lambda sheet: Words(
        f"The number of cores of {sheet['cores'].node} is not known: it has no CPU sample."
    ),
    DataloaderKind.WARMING_UP: lambda sheet: Words(_progress(sheet)),
    DataloaderKind.WAITS: lambda sheet: Words(
        f"{_waits(sheet)} {_number(sheet)}",
        _advice_on_waits(sheet),
        f"the training waited for batches of its data loader in {sheet.share('waiting_share')} of its loop",
    ),
    DataloaderKind.BETWEEN_STEPS: _of_gaps,
}
