"""The ``documented`` reading over a profile, and the result of an analysis, in one shape for both readings."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainguard.cli.output.progress import ProgressBar
from trainguard.cli.output.rendering import Block, Grid, Line, TerminalColumn, status_cell
from trainguard.cli.output.rows import has_verdict
from trainguard.cli.services.names import unpriced
from trainguard.cli.services.own_rules import rule_at
from trainguard.core.errors import ParameterFileError
from trainguard.core.records import Status
from trainguard.core.units import counted, faults_counted
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan, only
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.local.analysis import evaluated_profile, report_of
from trainguard.local.profile import Profile
from trainguard.local.settings import BAD_JOB_FILES, GivenSettings, described_job, given_settings, read_given
from trainguard.local.training import debugger_reports
from trainguard.planning.document import FinishForecast
from trainguard.planning.text import said_finish
from trainguard.report.document import Headline
from trainguard.report.job.build import report_files, training_files
from trainguard.report.job.coverage import CUT_FILES, UNREAD_PARTS
from trainguard.rules.parameters import Defaults, parameters_of, read_parameter_file

SCHEMA_VERSION = "2"
FOREIGN = "files_of_other_kinds"

NOTHING_EVALUATED = "No verdict: no rule could be evaluated."

_COLUMNS = (
    TerminalColumn("status"),
    TerminalColumn("rule"),
    TerminalColumn("severity"),
    TerminalColumn("reason and advice", folds=True),
)
_GAPS = "gaps"
# On fewer columns the reasons would be cut to nothing.
_NARROW = 72

# What is said about a rule; a share is from 0 to 1, ``cost`` a sentence. None is what a reading does not say.
FIELDS = (
    *("rule", "status", "reason", "severity", "advice", "worst", "affected_share", "wasted_share", "cost"),
    *("measured", "threshold", "times_fired", "violations", "data_points", "parameters"),
)

# No fault of anybody, or counted by what is wrong with the parts.
_COUNTED = HARMLESS_COUNTERS | {UNREAD_PARTS, CUT_FILES}
_OF_FINDING = ("advice", "affected_share", "wasted_share", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """An analysis of ``place``; ``rules`` have `FIELDS` and are most severe first, ``files`` are reports by name.

    ``unread`` are numbers by kind. ``healthy``: all that applies was judged and nothing has fired. ``fault`` says why
    one of several runs could not be read.
    """

    place: str
    rules: Sequence[Mapping[str, Any]] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)
    healthy: bool = False
    fault: str | None = None
    verdict: Headline | None = None
    summary: str | None = None
    cost: str | None = None
    finish: FinishForecast | None = None
    notes: Sequence[str] = ()

    @property
    def fired(self) -> list[str]:
        """Names of the rules that have fired, be it over by now."""
        return [each["rule"] for each in self.rules if each["times_fired"] > 0 or each["status"] == Status.FIRED]

    @property
    def evaluated(self) -> bool:
        return has_verdict((each["rule"], each["status"], each["times_fired"]) for each in self.rules)


def document_of(
    outcome: Analysis, *, reading: str = "documented", defaults: str = "documented", out: Path | None = None
) -> dict[str, Any]:
    """Return the outcome for machines; ``out`` is the folder of the reports."""
    return {
        "schema_version": SCHEMA_VERSION,
        "reading": reading,
        "defaults": defaults,
        "source": shown_path(outcome.place),
        "out": None if out is None else shown_path(str(out)),
        "healthy": outcome.healthy,
        "evaluated": outcome.evaluated,
        "fired": outcome.fired,
        "verdict": outcome.verdict,
        "summary": outcome.summary,
        "cost": outcome.cost,
        "finish": outcome.finish,
        "rules": outcome.rules,
        "unread": dict(outcome.unread),
        "files": [] if out is None else list(outcome.files),
        "notes": list(outcome.notes),
    }


def shown_path(path: str) -> str:
    """Return a path as text; a question mark for each byte that is none."""
    return path.encode("utf-8", "replace").decode()


def blocks_of(outcome: Analysis) -> list[Block]:
    """Return blocks of the rules' verdicts, unread files, and the job's cost."""
    verdict = outcome.verdict
    texts = [] if verdict is None else [verdict.health, verdict.change, verdict.cost]
    texts += [] if outcome.cost is None else [outcome.cost]
    texts += [] if outcome.finish is None else [said_finish(outcome.finish)]
    unused = dict(outcome.unread)
    if missing := unused.pop(_GAPS, 0):
        texts.append(f"Missing between the first and the last system metrics: {counted(missing, 'minute')}.")
    if unused:
        texts.append(f"Not used: {', '.join(faults_counted(amount, name) for name, amount in unused.items())}.")
    if not outcome.evaluated:
        texts.append(f"{NOTHING_EVALUATED} The profile holds nothing that a rule could read, or too little of it.")
    rows = []
    for each in outcome.rules:
        cost = None if each["cost"] is None else f"It has cost {each['cost']}."
        sentences = " ".join(part for part in (each["reason"], each["advice"], cost) if part)
        status = status_cell(Status(each["status"]), over=True)
        rows.append([status, each["rule"], each["severity"] or "", sentences])
    return [Grid(_COLUMNS, rows, stacks_below=_NARROW), *(Line(text, whole=True) for text in texts)]


def chosen_rules(
    *,
    params: Path | None = None,
    prices: Path | None = None,
    defaults: Defaults = "documented",
    instance_type: str | None = None,
    framework_expected: bool = False,
    rule: str | None = None,
) -> tuple[GivenSettings, RulePlan]:
    """Return what a person gave, and all rules by it, or ``rule``, ``module:Class``, alone.

    Raises ParameterFileError, RuleConfigError or PriceTableError when it cannot be used.
    """
    of_all = params if rule is None else None
    given = given_settings(of_all, prices, instance_type, framework_expected=framework_expected, defaults=defaults)
    plan = FAMILIES.plan(given.job(""), defaults=defaults, prices=given.prices)
    if rule is not None:
        own, settings = rule_at(rule), {}
        if params is not None:
            settings = read_parameter_file(str(params), read_given(params, ParameterFileError), others=[own.name])
        plan = only(plan, own, parameters_of(own.name, own.parameters_type, settings))
    return given, plan


def documented(profile: Profile, given: GivenSettings, plan: RulePlan, progress: ProgressBar | None) -> Analysis:
    """Evaluate a run; raises as `evaluated_profile` does."""
    job, job_notes = described_job(profile.source, given.job(profile.root.job))
    done = evaluated_profile(profile, job, plan, progress, timelines=False)
    built = report_of(done)
    report = built.report
    # `report` alone writes the series of the training: here its rules, and a model of XGBoost, have files of their own.
    files = report_files(built.without_training(), page=False)
    if profile.training is not None:
        files = debugger_reports(done.streams) | training_files(report) | files
    unread = Counter({FOREIGN: len(profile.foreign), BAD_JOB_FILES: int(job.file_fault is not None), **profile.unread})
    for stream in report.coverage:
        unread.update({name: amount for name, amount in stream.counters.items() if name not in _COUNTED})
    findings = {finding.rule: finding for finding in report.findings}
    return Analysis(
        place=profile.source.place,
        rules=[
            {name: getattr(findings.get(each.rule) if name in _OF_FINDING else each, name, None) for name in FIELDS}
            for each in report.rules
        ],
        files=files,
        unread=dict(sorted((+unread).items())),
        healthy=report.healthy,
        verdict=report.verdict,
        summary=report.summary,
        cost=report.cost.note,
        finish=report.finish,
        notes=[*profile.notes, *job_notes, *unpriced(given.instance_type, given.prices), *done.notes],
    )
