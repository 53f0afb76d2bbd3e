"""A run of a gate by its profile and scalars, with the ledger where one is known."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.records import JobStatus
from trainguard.engine.family import ObjectSource
from trainguard.engine.installed import FAMILIES
from trainguard.engine.training.family import TRAINING_HEALTH
from trainguard.engine.training.scalar_files import FileState, ScalarFiles
from trainguard.gate.runs import SPEEDS, GateRun, Metric, Points, metric_of
from trainguard.local.analysis import evaluated_profile, report_of
from trainguard.local.profile import Profile, TrainingFiles
from trainguard.local.settings import GivenSettings, described_job
from trainguard.report.document import Report
from trainguard.report.timeline.series import StepTimeline, Timelines

_MOST_FILES = 256

# Names of what no scalar says by itself.
BETWEEN_RECORDS, OF_PROFILE = "time between records", "mean step of a bucket"
STEPS_A_SECOND, MEMORY_USED = "steps a second of the training loop", "GPU memory used, percent"


def profile_run(place: str, profile: Profile) -> GateRun:
    job, notes = described_job(profile.source, GivenSettings().job(profile.root.job))
    series: dict[Metric, dict[str, Points]] = defaultdict(dict)
    if profile.training is not None and profile.training.scalars:
        _add_scalars(series, profile.training, notes)
    known = {"instance type": job.instance_type, "nodes": job.instance_count}
    about = {what: str(value) for what, value in known.items() if value is not None}
    run = GateRun(place, series, about=about, failed=job.status is JobStatus.FAILED)
    if profile.nodes:
        plan = FAMILIES.plan(job, defaults="documented")
        done = evaluated_profile(replace(profile, kernels=None, training=None), job, plan, None)
        run = _with_report(run, report_of(done).report, series)
    return replace(run, notes=tuple(f"{place}: {each}" for each in notes))


def _add_scalars(series: dict[Metric, dict[str, Points]], training: TrainingFiles, notes: list[str]) -> None:
    """Put in the scalars that measure something; without a speed among them, the time between records."""
    values: dict[str, dict[int, float]] = defaultdict(dict)
    times: dict[int, float] = {}
    reader = ScalarFiles(
        ObjectSource(training.objects, training.bucket, training.root, TRAINING_HEALTH.object_cap_bytes)
    )
    for name, file in sorted(reader.listed().items())[:_MOST_FILES]:
        state = FileState(file.key.source)
        try:
            while (piece := reader.read(file, state)) is not None:
                for each in piece.recordings:
                    if each.timed:
                        times[each.step] = each.at
                    for scalar, value in each.values.items():
                        values[scalar][each.step] = value
                state.taken, state.seen = piece.taken, piece.seen
        except TelemetryFormatError as fault:
            notes.append(f"{name} was not read: {fault.reason}.")
    for scalar, by_step in values.items():
        if (known := metric_of(scalar)) is not None:
            series[known[0]][scalar] = _points({step: value * known[1] for step, value in by_step.items()})
    if not any(series.get(metric) for metric in SPEEDS) and (between := _between(times)):
        series[Metric.STEP_TIME][BETWEEN_RECORDS] = _points(between)


def _points(by_step: Mapping[int, float]) -> Points:
    steps = sorted(by_step)
    return Points(np.array(steps, np.int64), np.array([by_step[step] for step in steps], np.float64))


def _between(times: Mapping[int, float]) -> dict[int, float]:
    """Return seconds a step up to each record, by the times of records."""
    steps = sorted(times)
    return {
        later: (times[later] - times[earlier]) / (later - earlier)
        for earlier, later in pairwise(steps)
        if times[later] > times[earlier]
    }


def _with_report(run: GateRun, report: Report, series: dict[Metric, dict[str, Points]]) -> GateRun:
    if report.timelines is not None:
        nodes = _node_steps(report.timelines)
        if nodes and not any(series.get(metric) for metric in SPEEDS):
            series[Metric.STEP_TIME][OF_PROFILE] = _slowest(list(nodes.values()))
        if (memory := _memory(report.timelines)) is not None and not series.get(Metric.MEMORY):
            series[Metric.MEMORY][MEMORY_USED] = _points({0: memory})
        run = replace(run, nodes=nodes)
    if report.goodput is not None:
        series[Metric.GOODPUT]["goodput"] = _points({0: report.goodput})
    processes = len({(each.node, each.process) for each in report.timelines.steps}) if report.timelines else 0
    steps = report.job.steps // processes if report.job.steps and processes else None
    loop = report.job.training_loop
    if steps and loop is not None and loop.duration_s > 0.0 and not series.get(Metric.THROUGHPUT):
        series[Metric.THROUGHPUT][STEPS_A_SECOND] = _points({0: steps / loop.duration_s})
    about = {"GPUs": str(report.job.gpus), **run.about}
    return replace(
        run,
        ledger={entry.bucket: entry.gpu_seconds for entry in report.ledger} or None,
        steps=steps,
        about=about,
    )


def _node_steps(lines: Timelines) -> dict[str, Points]:
    """Return mean step times by node over the buckets since the first step, of the mode with most steps."""
    modes: dict[str, int] = defaultdict(int)
    for each in lines.steps:
        modes[each.mode] += each.steps
    chosen = max(modes, key=lambda mode: (modes[mode], mode), default=None)
    by_node: dict[str, list[Points]] = defaultdict(list)
    for each in lines.steps:
        if each.mode == chosen:
            by_node[each.node].append(_bucket_points(each))
    return {node: _slowest(parts) for node, parts in by_node.items()}


def _bucket_points(line: StepTimeline) -> Points:
    first = next((place for place, value in enumerate(line.mean_s) if value is not None), 0)
    return _points({place - first: value for place, value in enumerate(line.mean_s) if value is not None})


def _slowest(parts: Sequence[Points]) -> Points:
    longest: dict[int, float] = {}
    for each in parts:
        for step, value in zip(each.steps.tolist(), each.values.tolist(), strict=True):
            longest[step] = max(value, longest.get(step, -math.inf))
    return _points(longest)


def _memory(lines: Timelines) -> float | None:
    bands = (device.band for node in lines.nodes for device in node.devices if device.kind == "memory_used")
    return max((value for band in bands for value in band.mean if value is not None), default=None)
