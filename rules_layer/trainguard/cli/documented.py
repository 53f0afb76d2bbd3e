"""The ``documented`` reading over a profile: the deployed engine on this machine."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from trainguard.cli.files import read_body
from trainguard.cli.outcome import FOREIGN, Outcome, RuleLine
from trainguard.cli.progress import Progress
from trainguard.engine.plan import plan_rules
from trainguard.engine.session import HARMLESS_COUNTERS
from trainguard.errors import ParameterFileError, PriceTableError
from trainguard.local.engine import evaluate_profile
from trainguard.local.pool import WorkerPool, workers_for
from trainguard.local.profile import Profile, read_profile
from trainguard.local.sources import ProfileSource
from trainguard.pricing.table import PriceTable, read_prices
from trainguard.records import JobRecord
from trainguard.report.build import REPORT_NAME, build_report
from trainguard.rules.defaults import Defaults
from trainguard.rules.parameters import read_parameter_file


class Documented:
    """The reading with a person's settings.

    Parameters
    ----------
    params, prices : Path or None
        Files of parameters and of prices.
    defaults : {"documented", "shipped"}
    instance_type : str or None
    framework_expected : bool
        Whether the job should have written framework metrics.

    Raises
    ------
    ParameterFileError, RuleConfigError, PriceTableError
        When a file cannot be used.
    """

    def __init__(
        self,
        *,
        params: Path | None,
        prices: Path | None,
        defaults: Defaults,
        instance_type: str | None,
        framework_expected: bool,
    ) -> None:
        settings = {} if params is None else read_parameter_file(str(params), read_body(params))
        self._job = JobRecord(
            job="",
            arn="",
            bucket="",
            prefix="",
            instance_type=instance_type,
            framework_expected=framework_expected,
            rule_settings=settings,
        )
        self._plan = plan_rules(self._job, defaults=defaults, prices=None if prices is None else _prices(prices))
        if self._plan.faults:
            raise ParameterFileError(str(params), "; ".join(str(fault) for fault in self._plan.faults.values()))

    def analyze(self, source: ProfileSource, progress: Progress) -> Outcome:
        """Evaluate a profile; raises what `evaluate_profile` does, and NoProfileError."""
        profile = read_profile(source)
        name = profile.root.job
        job = replace(self._job, job=name, arn=f"unknown:{name}", instance_count=profile.instances)
        with WorkerPool(workers_for(_minutes(profile))) as pool, progress.of_objects(profile.objects, profile.size):
            evaluation = evaluate_profile(job, self._plan, profile, pool, progress.applied)
        files = build_report(evaluation.job, evaluation.records, now=time.time(), plan=evaluation.plan)
        return _outcome(profile, files)


def _prices(file: Path) -> PriceTable:
    try:
        body = file.read_bytes()
    except OSError as fault:
        raise PriceTableError(str(file), fault.strerror or str(fault)) from fault
    return read_prices(str(file), body)


def _minutes(profile: Profile) -> int:
    return sum(len(node.minutes) for node in profile.nodes.values())


def _outcome(profile: Profile, files: Mapping[str, bytes]) -> Outcome:
    report = msgspec.json.decode(files[REPORT_NAME])
    findings = {finding["rule"]: finding for finding in report["findings"]}
    ranks = {rule: place for place, rule in enumerate(findings)}
    rules = sorted(report["rules"], key=lambda rule: ranks.get(rule["rule"], len(ranks)))
    unread = Counter({FOREIGN: len(profile.foreign)})
    for node in report["nodes"]:
        unread.update({name: amount for name, amount in node["counters"].items() if name not in HARMLESS_COUNTERS})
    return Outcome(
        rules=[_line(rule, findings.get(rule["rule"], {})) for rule in rules],
        files=files,
        unread=dict(sorted((+unread).items())),
        verdict=report["verdict"],
        cost=report["cost"]["note"],
    )


def _line(rule: Mapping[str, Any], finding: Mapping[str, Any]) -> RuleLine:
    return RuleLine(
        rule=rule["rule"],
        status=rule["status"],
        reason=rule["reason"],
        severity=finding.get("severity"),
        advice=finding.get("advice"),
        worst=rule["worst"],
        affected_share=finding.get("affected_share"),
        wasted_share=finding.get("wasted_share"),
        cost=(finding.get("cost") or {}).get("sentence"),
        measured=rule["measured"],
        threshold=rule["threshold"],
        times_fired=rule["times_fired"],
        violations=rule["violations"],
        data_points=rule["data_points"],
        parameters=rule["parameters"],
    )
