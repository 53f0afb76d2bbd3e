"""The ``compatible`` reading over a profile: what the managed service would have written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from trainguard.cli.commands.analyze.outcome import FOREIGN, Outcome, RuleVerdict
from trainguard.cli.output.files import read_body
from trainguard.cli.output.progress import Progress
from trainguard.core.errors import EmptyProfileError, NoProfileError, RuleConfigError, RuleFailedError
from trainguard.core.records import Status
from trainguard.local.places import open_place
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.managed.parameters import RULES, resolve_compatible_parameters, resolve_scan_interval_us
from trainguard.managed.replay import replay
from trainguard.render.details import encode_report
from trainguard.rules.parameters import Defaults, read_parameter_file
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters

_CANONICAL = {name.lower(): name for name in (*(rule.name for rule in RULES), PROFILER_REPORT)}
_UNPREFIXED = frozenset(field.name for field in msgspec.structs.fields(ReportParameters))
_WITHOUT_EFFECT = frozenset({"opt_out_telemetry", "rule_to_invoke"})


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


_US_PER_S = 1_000_000


class DebuggerReplay:
    """The ``compatible`` reading with a person's settings; raises ParameterFileError, RuleConfigError."""

    def __init__(self, place: str, *, params: Path | None, defaults: Defaults) -> None:
        self._settings = {} if params is None else _settings_by_rule(str(params), read_body(params))
        self._documented = defaults == "documented"
        resolve_compatible_parameters(self._settings, documented=self._documented)
        self._source = open_place(place)

    @property
    def place(self) -> str:
        """Where the profile lies."""
        return self._source.place

    def analyze(self, progress: Progress) -> Outcome:
        """Replay a profile; raises NoProfileError for one without system metrics, which the original waits for."""
        source = self._source
        names = list(source.sizes)
        interval_s = resolve_scan_interval_us(self._settings) / _US_PER_S
        try:
            with WorkerPool(workers_for(len(names))) as pool, progress.of_windows(interval_s):
                replayed = replay(
                    names,
                    source.read,
                    self._settings,
                    documented_defaults=self._documented,
                    progress=progress.replayed,
                    file_map=pool.map,
                )
        except EmptyProfileError as fault:
            raise NoProfileError(source.place) from fault
        reports = replayed.reports
        lines = [_line(rule, report) for rule, report in reports.items()]
        return Outcome(
            rules=sorted(lines, key=lambda line: not line.fired) + [_failed(*each) for each in replayed.failed.items()],
            files={f"profiler-reports/{rule}.json": encode_report(report) for rule, report in reports.items()},
            unread=dict(sorted(replayed.skipped.items())),
            healthy=_is_healthy(lines, replayed.failed, replayed.skipped),
        )


def _is_healthy(lines: Sequence[RuleVerdict], failed: Mapping[str, str], skipped: Mapping[str, int]) -> bool:
    """Whether some rule had data, none has fired or failed, and everything could be read."""
    judged = any(line.data_points for line in lines)
    unread = sum(amount for kind, amount in skipped.items() if kind != FOREIGN)
    return judged and not any(line.fired for line in lines) and not failed and not unread


def _line(rule: str, report: Mapping[str, Any]) -> RuleVerdict:
    triggered, violations, points = (report[name] for name in ("RuleTriggered", "Violations", "Datapoints"))
    reason = f"triggered {triggered:,} times, {violations:,} violations in {points:,} data points."
    return RuleVerdict(
        rule=rule,
        status=_status(triggered, points),
        reason=reason if points else f"{reason} It has no verdict.",
        times_fired=triggered,
        violations=violations,
        data_points=points,
        parameters=report["RuleParameters"],
    )


def _status(triggered: int, points: int) -> Status:
    """Return a rule's status: one without a data point is no all-clear."""
    if triggered:
        return Status.FIRED
    return Status.OK if points else Status.NOT_APPLICABLE


def _failed(rule: str, fault: str) -> RuleVerdict:
    why = str(RuleFailedError(rule, fault))
    return RuleVerdict(
        rule=rule, status=Status.ERROR, reason=why, times_fired=0, violations=0, data_points=0, parameters=""
    )
