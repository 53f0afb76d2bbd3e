"""The ``documented`` reading over a profile: the deployed engine on this machine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainguard.cli.commands.analyze.outcome import FOREIGN, Outcome, RuleVerdict
from trainguard.cli.output.progress import Progress
from trainguard.cli.services.input_files import prices_from, rule_from, settings_from
from trainguard.engine.plan import RulePlan, only
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.families.installed import FAMILIES
from trainguard.families.training.naming import scalar_names
from trainguard.local.analysis import EvaluatedProfile, evaluated_profile
from trainguard.local.debugger_reports import debugger_reports
from trainguard.local.job_json import BAD_JOB_FILES, DescribedJob, described_job
from trainguard.local.places import open_job
from trainguard.local.profile import Profile
from trainguard.local.training_digest import digest_training
from trainguard.records import JobRecord
from trainguard.report.build import BuiltReport
from trainguard.report.document import FindingEntry, RuleEntry
from trainguard.report.files import report_files, training_files
from trainguard.report.profiler_coverage import CUT_FILES, UNREAD_PARTS
from trainguard.rules.defaults import Defaults

_COUNTED = HARMLESS_COUNTERS | {UNREAD_PARTS, CUT_FILES}
"""No fault of anybody, or counted by what is wrong with the parts."""


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
    rule : str or None
        ``module:Class`` of a rule that is to judge in place of all others.

    Raises
    ------
    RuleLoadError
        When there is no such rule, or it breaks the protocol.
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
        rule: str | None = None,
    ) -> None:
        self._job = JobRecord(
            job="",
            arn="",
            bucket="",
            prefix="",
            instance_type=instance_type,
            framework_expected=framework_expected,
            rule_settings=settings_from(params, defaults) if rule is None else {},
        )
        self._plan = FAMILIES.plan(self._job, defaults=defaults, prices=prices_from(prices))
        if rule is not None:
            self._plan = only(self._plan, *rule_from(rule, params))

    def open(self, place: str) -> "OpenedJob":
        """Find what a job wrote at a place; raises what `open_job` does."""
        return OpenedJob(open_job(place), self._job, self._plan)


@dataclass(frozen=True, slots=True)
class OpenedJob:
    """A job's files, what is known of it beside them, and the rules."""

    profile: Profile
    job: JobRecord
    plan: RulePlan

    @property
    def place(self) -> str:
        """Where the files lie."""
        return self.profile.source.place

    def analyze(self, progress: Progress) -> Outcome:
        """Evaluate the job; raises what `evaluated_profile` does."""
        name = self.profile.root.job
        described = described_job(self.profile.source, replace(self.job, job=name, arn=f"unknown:{name}"))
        judged = evaluated_profile(self.profile, described.job, self.plan, progress, timelines=False)
        built = judged.report()
        return _outcome(self.profile, built, described, self._of_training(judged, built), judged.notes)

    def _of_training(self, judged: EvaluatedProfile, built: BuiltReport) -> dict[str, bytes]:
        """Return a report for each rule of training, and for a model of XGBoost its files."""
        if judged.training is None or self.profile.training is None:
            return {}
        reports = debugger_reports(judged.training)
        shown = digest_training(self.profile.training, self.profile.root.job, judged.training, scalar_names(self.plan))
        return reports if shown is None else {**reports, **training_files(built.with_training(shown).report)}


def _outcome(
    profile: Profile,
    built: BuiltReport,
    described: DescribedJob,
    debugger: Mapping[str, bytes],
    notes: Sequence[str],
) -> Outcome:
    report = built.report
    findings = {finding.rule: finding for finding in report.findings}
    unread = Counter({FOREIGN: len(profile.foreign), BAD_JOB_FILES: int(described.bad), **profile.unread})
    for stream in report.coverage:
        unread.update({name: amount for name, amount in stream.counters.items() if name not in _COUNTED})
    return Outcome(
        rules=[_line(rule, findings.get(rule.rule)) for rule in report.rules],
        files={**debugger, **report_files(built, page=False)},
        unread=dict(sorted((+unread).items())),
        healthy=report.healthy,
        verdict=report.verdict,
        summary=report.summary,
        cost=report.cost.note,
        notes=[*profile.notes, *([] if described.note is None else [described.note]), *notes],
    )


def _line(rule: RuleEntry, finding: FindingEntry | None) -> RuleVerdict:
    return RuleVerdict(
        rule=rule.rule,
        status=rule.status,
        reason=rule.reason,
        severity=rule.severity,
        advice=None if finding is None else finding.advice,
        worst=rule.worst,
        affected_share=None if finding is None else finding.affected_share,
        wasted_share=None if finding is None else finding.wasted_share,
        cost=None if finding is None or finding.cost is None else finding.cost.sentence,
        measured=rule.measured,
        threshold=rule.threshold,
        times_fired=rule.times_fired,
        violations=rule.violations,
        data_points=rule.data_points,
        parameters=rule.parameters,
    )
