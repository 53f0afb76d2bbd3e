"""A run that another tool recorded as the profile of a job. Importing this module imports protobuf."""

from collections.abc import Iterator, Set
from dataclasses import replace

from trainguard.core.errors import NoProfileError, ProfileSourceError, UnreadableRunError
from trainguard.core.layout import ProfileRoot
from trainguard.formats.runs.managed import EVENT_FILE, event_file, job_file, system_files
from trainguard.formats.runs.run import CUT, SeriesName, SourceRun
from trainguard.local.profile import Profile, TrainingFiles, empty_profile, read_profile
from trainguard.local.settings import JOB_FILE
from trainguard.local.sources import FilesAsBucket, MemoryFiles, RecordedRun, safe_name, source_in_memory


def open_run(recorded: RecordedRun) -> Profile:
    """Read a run as the profile of a job, with what the run logged of its training.

    Raises ProfileSourceError when it cannot be read; UnreadableRunError when it is damaged and nothing is left;
    TelemetryFormatError when a file is none of its tool; NoProfileError when it is empty.
    """
    place = recorded.place
    try:
        run = recorded.read()
    except OSError as fault:
        raise ProfileSourceError(place, f"cannot be read: {fault.strerror or fault}") from fault
    name = safe_name(run.name or recorded.stem)
    files = system_files(run)
    about = job_file(run, name)

    def beside(file: str, max_bytes: int) -> bytes | None:
        return about[: max_bytes + 1] if file == JOB_FILE else None

    source = source_in_memory(place, name, files, beside)
    root = ProfileRoot("", name)
    training = None
    if run.scalars:
        key = f"{root.folder}tensorboard-output/{EVENT_FILE}"
        objects = FilesAsBucket(MemoryFiles(place, {key: event_file(run.scalars)}, run.scalars[-1].at))
        training = TrainingFiles(objects, place, root, tensors=False, ended=True, scalars=(key,))
    if files:
        profile = replace(read_profile(source), training=training)
    elif training is not None:
        profile = empty_profile(source, training)
    elif run.bad:
        what = ", ".join(f"{why} ({count:,})" for why, count in run.bad.items())
        raise UnreadableRunError(place, f"nothing of it could be read: {what}", sum(run.bad.values()))
    else:
        raise NoProfileError(place, run.nothing)
    not_judged = sum(map(len, run.not_judged.values()))
    return replace(profile, notes=tuple(_notes(run)), unread=dict(run.bad), not_judged=not_judged, link=run.link)


def _notes(run: SourceRun) -> Iterator[str]:
    interval_s = run.interval_s
    if interval_s is not None and run.asked_s is not None:
        yield (
            f"{run.tool} was asked for a sample of the system metrics each {run.asked_s:,.1f} s; how often they were "
            "measured is not known."
        )
    elif interval_s is not None:
        yield f"{run.tool} recorded the system metrics, a sample each {interval_s:,.1f} s."
    recorded = {_kind(name) for each in run.snapshots.values() for snapshot in each for name in snapshot.values}
    missing = [what for what, kind in _WANTED.items() if kind not in recorded]
    if run.snapshots and missing:
        yield f"{run.tool} recorded no {' and no '.join(missing)}: rules that need them have no verdict."
    if any(kind == "gpu" for kind, _ in recorded):
        for (what, kinds), so in _HELPFUL.items():
            if not recorded.intersection(("gpu", kind) for kind in kinds):
                other = run.not_read.get(kinds[0])
                yield f"{run.tool} recorded no {what}: {so}." if other is None else f"Not judged: {other}; {so}."
    for kind, devices in sorted(run.not_judged.items()):
        yield f"Not judged: {run.tool} recorded metrics of {kind}s ({_listed(devices)}), which are not read."
    yield from run.notes
    yield from (f"Not used of {run.tool}, {count:,} times: {why}." for why, count in run.bad.items() if why != CUT)
    yield from (f"Absent in what {run.tool} recorded, {count:,} times: {what}." for what, count in run.absent.items())
    if run.outcome is None:
        yield f"{run.tool} recorded no end of the run: it still runs, or something ended it."
    if run.link is not None:
        yield f"The run: {run.link}"


_WANTED = {
    "utilization of GPUs": ("gpu", "GPUUtilization"),
    "utilization of CPU cores": ("cpu", "CPUUtilization"),
    "I/O wait": ("cpu", "I/OWaitPercentage"),
}

_HELPFUL = {
    ("memory in use of GPUs", ("MemoryUsedBytes", "MemoryUsedPercent")): "whether idle GPUs hold memory is not known",
    ("power of GPUs", ("PowerWatts",)): "HungJob has no verdict",
    ("SM activity of GPUs", ("SMActivityPercent",)): (
        "a GPU that looks busy and does little is found only by its tensor cores and memory, where these are recorded"
    ),
}


def _kind(name: SeriesName) -> tuple[str, str]:
    return name.type, name.dimension or name.name.rpartition(".")[2]


_SHOWN = 4


def _listed(devices: Set[str]) -> str:
    shown = sorted(devices, key=lambda device: (len(device), device))
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
