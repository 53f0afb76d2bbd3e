"""The ``compatible`` reading over a profile: what the managed service would have written."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trainguard.cli.commands.analyze.outcome import FIELDS, FOREIGN, Analysis
from trainguard.cli.output.files import prepare
from trainguard.cli.output.progress import ProgressBar
from trainguard.core.errors import (
    EmptyProfileError,
    NoProfileError,
    ParameterFileError,
    RuleConfigError,
    RuleFailedError,
)
from trainguard.core.records import Status
from trainguard.local.places import open_place
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.local.settings import read_given
from trainguard.managed.parameters import RULES, resolve_compatible_parameters, resolve_scan_interval_us
from trainguard.managed.replay import replay
from trainguard.render.details import encode_report
from trainguard.rules.parameters import Defaults, read_parameter_file
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters

_CANONICAL = {name.lower(): name for name in (*(rule.name for rule in RULES), PROFILER_REPORT)}
_UNPREFIXED = frozenset(field.name for field in msgspec.structs.fields(ReportParameters))
_WITHOUT_EFFECT = frozenset({"opt_out_telemetry", "rule_to_invoke"})
_US_PER_S = 1_000_000


def _settings_by_rule(name: str, body: bytes) -> dict[str, dict[str, Any]]:
    """Return a file's settings by rule and parameter, as written; raises ParameterFileError, RuleConfigError."""
    read_parameter_file(name, body)
    written: dict[str, Any] = msgspec.json.decode(body)
    settings: dict[str, dict[str, Any]] = {}
    for key, value in written.items():
        pairs = {f"{key}_{name}": each for name, each in value.items()} if isinstance(value, dict) else {key: value}
        for setting, each in pairs.items():
            rule, parameter = _split(setting)
            earlier = settings.setdefault(rule, {}).setdefault(parameter, each)
            if earlier != each:
                raise RuleConfigError(rule, setting, each, f"the same as before, {earlier!r}")
    for parameter in _WITHOUT_EFFECT:
        settings.get(PROFILER_REPORT, {}).pop(parameter, None)
    return settings


def _split(setting: str) -> tuple[str, str]:
    if setting.lower() in _UNPREFIXED:
        return PROFILER_REPORT, setting.lower()
    rule, _, parameter = setting.partition("_")
    return _CANONICAL.get(rule.lower(), rule), parameter.lower()


def debugger_replay(
    place: str, progress: ProgressBar, *, out: Path | None, params: Path | None, defaults: Defaults
) -> Analysis:
    """Replay a profile; raises ParameterFileError, RuleConfigError for settings that cannot be used.

    NoProfileError is raised for a profile without system metrics, for which the original waits.
    """
    settings = {} if params is None else _settings_by_rule(str(params), read_given(params, ParameterFileError))
    documented = defaults == "documented"
    resolve_compatible_parameters(settings, documented=documented)
    source = open_place(place)
    if out is not None:
        prepare(out)
    names = list(source.sizes)
    interval_s = resolve_scan_interval_us(settings) / _US_PER_S
    try:
        with WorkerPool(workers_for(len(names))) as pool, progress.of_windows(interval_s):
            replayed = replay(
                names,
                source.read,
                settings,
                documented_defaults=documented,
                progress=progress.replayed,
                file_map=pool.map,
            )
    except EmptyProfileError as fault:
        raise NoProfileError(source.place) from fault
    rows = sorted((_row(*each) for each in replayed.reports.items()), key=lambda row: row["times_fired"] == 0)
    unread = sum(amount for kind, amount in replayed.skipped.items() if kind != FOREIGN)
    return Analysis(
        place=source.place,
        rules=rows
        + [_said(rule, Status.ERROR, str(RuleFailedError(rule, why))) for rule, why in replayed.failed.items()],
        files={f"profiler-reports/{rule}.json": encode_report(report) for rule, report in replayed.reports.items()},
        unread=dict(sorted(replayed.skipped.items())),
        healthy=any(row["data_points"] for row in rows)
        and not any(row["times_fired"] for row in rows)
        and not replayed.failed
        and not unread,
    )


def _row(rule: str, report: Mapping[str, Any]) -> dict[str, Any]:
    triggered, violations, points = (report[name] for name in ("RuleTriggered", "Violations", "Datapoints"))
    reason = f"triggered {triggered:,} times, {violations:,} violations in {points:,} data points."
    # A rule without a data point is no all-clear.
    status = Status.FIRED if triggered else Status.OK if points else Status.NOT_APPLICABLE
    numbers = {"times_fired": triggered, "violations": violations, "data_points": points}
    text = reason if points else f"{reason} It has no verdict."
    return _said(rule, status, text, **numbers, parameters=report["RuleParameters"])


def _said(rule: str, status: Status, reason: str, **more: Any) -> dict[str, Any]:
    nothing = {"times_fired": 0, "violations": 0, "data_points": 0, "parameters": ""}
    return dict.fromkeys(FIELDS) | {"rule": rule, "status": status, "reason": reason} | nothing | more
