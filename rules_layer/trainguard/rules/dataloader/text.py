"""The words of Dataloader."""

from collections.abc import Mapping

from trainguard.core.records import Status
from trainguard.rules.rule_result import FactSheet, JudgedKind, Parts, Words

# GPUs that are as busy hardly wait for data.
BUSY_PERCENT = 70.0


class DataloaderKind(JudgedKind):
    # The training processes wait for batches in a good part of their loop, and the GPUs are idle in that time.
    WAITS = "waits_for_batches", Status.FIRED
    # No loader events, and no step runs in a good part of the loop, in which the GPUs idle.
    BETWEEN_STEPS = "between_steps", Status.FIRED
    TOO_FEW = "too_few", Status.FIRED
    TOO_MANY = "too_many", Status.FIRED
    FITS = "fits"
    # Too few or too many, and hardly anything waits for them.
    LITTLE_LOST = "little_lost"
    TOO_EARLY = "too_early", Status.WARMING_UP
    WARMING_UP = "warming_up", Status.WARMING_UP
    NO_CORES = "no_cores", Status.WAITING_FOR_DATA
    TENSORFLOW = "tensorflow", Status.NOT_APPLICABLE
    NO_LOADERS = "no_loaders", Status.NOT_APPLICABLE
    NO_EVENTS = "no_events", Status.WAITING_FOR_DATA
    NO_FRAMEWORK_METRICS = "no_framework_metrics", Status.NOT_APPLICABLE


def text(sheet: FactSheet) -> Words:
    kind = DataloaderKind(sheet.kind)
    words = _WORDS[kind]
    if kind is DataloaderKind.TENSORFLOW and not sheet.number("prefetch"):
        words = _NO_PREFETCH
    return sheet.fill(words, **_PARTS)


def _number(sheet: FactSheet) -> str:
    limits = [each for each in (sheet.get("min_threshold"), sheet.get("max_threshold")) if each is not None]
    shown = ", ".join(f"{each.name} {each}" for each in limits)
    return sheet.say(
        "{loaders.node} {had/has} {loaders} loader process{es}{of} for {cores:core}: {loaders_of_cores}{limits}.",
        es="" if sheet["loaders"].value == 1 else "es",
        of=sheet.say(" of {training_processes.value} training processes") if _several(sheet) else "",
        limits=f" ({shown})" if shown else "",
    )


def _several(sheet: FactSheet) -> bool:
    return sheet.count("training_processes") > 1


def _shares(sheet: FactSheet) -> str:
    waited = sheet.say_if("waiting_share", "the training processes waited for batches in {waiting_share} of it")
    used = sheet.say_if("mean_utilization", "the GPUs that {mean_utilization.node} uses were {mean_utilization} busy")
    said = " and ".join(each for each in (waited, used) if each)
    return f"n the training loop {said}" if said else ""


def _advice_on_waits(sheet: FactSheet) -> str:
    cheaper = "ake batches cheaper to load: decode and resize ahead, keep them on a disk of the node"
    cheaper += sheet.say_if("fetch_time", " (a worker takes {fetch_time} for one, by the median)")
    if sheet.number("loaders") < sheet.number("workers_advised") * sheet.number("training_processes"):
        return f"{_workers(sheet, 'Raise')}, or m{cheaper}{_settings(sheet)}."
    return f"M{cheaper}: there is a loader process for each core{_settings(sheet)}."


def _advice_on_number(sheet: FactSheet) -> str:
    used = sheet.get("mean_utilization")
    busy = "; the GPUs that {used.node} uses were {used} busy all the same, so expect little of it"
    verb = "Raise" if sheet.kind == DataloaderKind.TOO_FEW else "Lower"
    said = "" if used is None or float(used.value) < BUSY_PERCENT else sheet.say(busy, used=used)
    return f"{_workers(sheet, verb)}{_settings(sheet)}{said}."


def _workers(sheet: FactSheet, verb: str) -> str:
    return sheet.say(
        "{verb} num_workers{now} to about {workers_advised.value}{each}, one loader process a core of {cores.value}",
        verb=verb,
        now=sheet.say_if("num_workers", " from {num_workers}"),
        each=sheet.say(" in each of the {training_processes.value} training processes") if _several(sheet) else "",
    )


def _settings(sheet: FactSheet) -> str:
    unpinned = sheet.say_if("pin_memory", "; set pin_memory=True, which is off")
    return unpinned + sheet.say_if("prefetch", "; end the tf.data pipeline with prefetch(tf.data.AUTOTUNE)")


_PARTS: Parts = {
    "number": _number,
    "shares": lambda sheet: f"i{_shares(sheet)}" if _shares(sheet) else "",
    "shares_after": lambda sheet: f" I{_shares(sheet)}." if _shares(sheet) else "",
    "advice_on_waits": _advice_on_waits,
    "advice_on_number": _advice_on_number,
}
_THREADS = (
    "The job loads data with TensorFlow, in threads of the training process: there are no loader processes to count; "
    "its pipeline "
)
_NO_PREFETCH = Words(f"{_THREADS}does not prefetch.", "End the tf.data pipeline with prefetch(tf.data.AUTOTUNE).")
_WORDS: Mapping[DataloaderKind, Words] = {
    DataloaderKind.WAITS: Words(
        "The training processes of {waiting_share.node} waited for batches in {waiting_share} of their loop, and the "
        "GPUs that it uses were {mean_utilization} busy in that time. {number}",
        "{advice_on_waits}",
        "the training waited for batches of its data loader in {waiting_share} of its loop",
    ),
    DataloaderKind.BETWEEN_STEPS: Words(
        "No step of the training processes of {between_steps_share.node} ran in {between_steps_share} of their loop, "
        "and the GPUs that it uses were {mean_utilization} busy in the loop. No event says what ran between the steps.",
        "Look between the steps: load batches ahead of time, with more data loader workers and prefetching, and log, "
        "evaluate and write checkpoints less often. Data loader events, which the recorder writes, say which it is.",
        "no step ran in {between_steps_share} of the training loop, where batches are loaded",
    ),
    DataloaderKind.TOO_FEW: Words(
        "{number}{shares_after}",
        "{advice_on_number}",
        "there were too few data loader processes for the cores",
    ),
    DataloaderKind.TOO_MANY: Words(
        "{number}{shares_after}",
        "{advice_on_number}",
        "there were too many data loader processes for the cores",
    ),
    DataloaderKind.FITS: Words("{number}"),
    DataloaderKind.LITTLE_LOST: Words("{number} That matters little: {shares}."),
    DataloaderKind.TOO_EARLY: Words(
        "{number} Whether the training waits for them is judged {judged_after} after the start."
    ),
    DataloaderKind.WARMING_UP: Words(
        "{seconds.node} has {seconds.value:,} of the more than {seconds.limit:second} with loader events that a "
        "verdict needs."
    ),
    DataloaderKind.NO_CORES: Words("The number of cores of {cores.node} is not known: it has no CPU sample."),
    DataloaderKind.TENSORFLOW: Words(f"{_THREADS}prefetches."),
    DataloaderKind.NO_LOADERS: Words(
        "The job's framework metrics have no data loader events: it uses no loader that writes them."
    ),
    DataloaderKind.NO_EVENTS: Words("No framework event was seen."),
    DataloaderKind.NO_FRAMEWORK_METRICS: Words("The job writes no framework metrics, so its data loaders are unknown."),
}
