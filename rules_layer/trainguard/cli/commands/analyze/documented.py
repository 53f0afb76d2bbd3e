"""The ``documented`` reading over a profile: the deployed engine on this machine."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainguard.cli.commands.analyze.outcome import FIELDS, FOREIGN, Outcome
from trainguard.cli.output.files import prepare
from trainguard.cli.output.progress import Progress
from trainguard.cli.services.names import unpriced
from trainguard.cli.services.own_rules import rule_at
from trainguard.core.errors import ParameterFileError
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import only
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.engine.training.keys import scalar_names
from trainguard.local.analysis import evaluated_profile, report_of
from trainguard.local.places import open_job
from trainguard.local.settings import BAD_JOB_FILES, described_job, given_settings, read_given
from trainguard.local.training import debugger_reports, digest_training
from trainguard.report.document import Report
from trainguard.report.job.coverage import CUT_FILES, UNREAD_PARTS
from trainguard.report.job.files import report_files, training_files
from trainguard.rules.parameters import Defaults, parameters_of, read_parameter_file

_COUNTED = HARMLESS_COUNTERS | {UNREAD_PARTS, CUT_FILES}
"""No fault of anybody, or counted by what is wrong with the parts."""

_OF_FINDING = ("advice", "affected_share", "wasted_share", "cost")


def documented(
    place: str,
    progress: Progress,
    *,
    out: Path | None = None,
    params: Path | None = None,
    prices: Path | None = None,
    defaults: Defaults = "documented",
    instance_type: str | None = None,
    framework_expected: bool = False,
    rule: str | None = None,
) -> Outcome:
    """Evaluate the job by all rules, or by ``rule``, ``module:Class``, alone; raises as `evaluated_profile` does."""
    of_all = params if rule is None else None
    given = given_settings(of_all, prices, instance_type, framework_expected=framework_expected, defaults=defaults)
    plan = FAMILIES.plan(given.job(""), defaults=defaults, prices=given.prices)
    if rule is not None:
        own, settings = rule_at(rule), {}
        if params is not None:
            settings = read_parameter_file(str(params), read_given(params, ParameterFileError), others=[own.name])
        plan = only(plan, own, parameters_of(own.name, own.parameters_type, settings))
    profile = open_job(place)
    if out is not None:
        prepare(out)
    job, job_notes = described_job(profile.source, given.job(profile.root.job))
    done = evaluated_profile(profile, job, plan, progress, timelines=False)
    built = report_of(done)
    report, files = built.report, report_files(built, page=False)
    if profile.training is not None:
        # A report for each rule of training, and for a model of XGBoost its files.
        of_rules, name = debugger_reports(done.streams), profile.root.job
        shown = digest_training(profile.training, name, done.records, done.streams, scalar_names(plan))
        of_model = {} if shown is None else training_files(built.with_training(shown).report)
        files = {**of_rules, **of_model, **files}
    unread = Counter({FOREIGN: len(profile.foreign), BAD_JOB_FILES: int(job.file_fault is not None), **profile.unread})
    for stream in report.coverage:
        unread.update({name: amount for name, amount in stream.counters.items() if name not in _COUNTED})
    unpriced_notes = unpriced(given.instance_type, given.prices)
    return Outcome(
        place=profile.source.place,
        rules=_rows(report),
        files=files,
        unread=dict(sorted((+unread).items())),
        healthy=report.healthy,
        verdict=report.verdict,
        summary=report.summary,
        cost=report.cost.note,
        notes=[*profile.notes, *job_notes, *unpriced_notes, *done.training_notes, *done.kernel_notes],
    )


def _rows(report: Report) -> list[Mapping[str, Any]]:
    findings = {finding.rule: finding for finding in report.findings}
    return [
        {name: getattr(findings.get(each.rule) if name in _OF_FINDING else each, name, None) for name in FIELDS}
        for each in report.rules
    ]
