"""The ``documented`` reading over a profile: the deployed engine on this machine."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

from trainguard.cli.commands.analyze.outcome import FOREIGN, Outcome, RuleVerdict
from trainguard.cli.output.progress import Progress
from trainguard.cli.services.input_files import prices_from, rule_from, settings_from
from trainguard.engine.plan import only
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.families.installed import FAMILIES
from trainguard.local.analysis import evaluated_profile
from trainguard.local.job_json import BAD_JOB_FILES, DescribedJob, described_job
from trainguard.local.profile import Profile, read_profile
from trainguard.local.sources import ProfileSource
from trainguard.records import JobRecord
from trainguard.report.build import BuiltReport
from trainguard.report.document import FindingEntry, RuleEntry
from trainguard.report.files import report_files
from trainguard.rules.defaults import Defaults


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

    def analyze(self, source: ProfileSource, progress: Progress) -> Outcome:
        """Evaluate a profile; raises what `evaluate_profile` does, and NoProfileError."""
        profile = read_profile(source)
        name = profile.root.job
        described = described_job(source, replace(self._job, job=name, arn=f"unknown:{name}"))
        judged = evaluated_profile(profile, described.job, self._plan, progress, timelines=False)
        return _outcome(profile, judged.report(), described)


def _outcome(profile: Profile, built: BuiltReport, described: DescribedJob) -> Outcome:
    report = built.report
    findings = {finding.rule: finding for finding in report.findings}
    unread = Counter({FOREIGN: len(profile.foreign), BAD_JOB_FILES: int(described.bad)})
    for stream in report.coverage:
        unread.update({name: amount for name, amount in stream.counters.items() if name not in HARMLESS_COUNTERS})
    return Outcome(
        rules=[_line(rule, findings.get(rule.rule)) for rule in report.rules],
        files=report_files(built, page=False),
        unread=dict(sorted((+unread).items())),
        healthy=report.healthy,
        verdict=report.verdict,
        summary=report.summary,
        cost=report.cost.note,
        notes=[] if described.note is None else [described.note],
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
