"""The ``documented`` reading over a profile: the deployed engine on this machine."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainguard.cli.commands.analyze.outcome import FOREIGN, Outcome, RuleVerdict
from trainguard.cli.output.progress import Progress
from trainguard.cli.services.input_files import given_settings, rule_from, unpriced
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import only
from trainguard.engine.streams.session import HARMLESS_COUNTERS
from trainguard.engine.training.keys import scalar_names
from trainguard.local.analysis import EvaluatedProfile, evaluated_profile
from trainguard.local.places import open_job
from trainguard.local.profile import Profile
from trainguard.local.settings import BAD_JOB_FILES, DescribedJob, described_job
from trainguard.local.training import debugger_reports, digest_training
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.document import FindingEntry
from trainguard.report.job.build import BuiltReport
from trainguard.report.job.coverage import CUT_FILES, UNREAD_PARTS
from trainguard.report.job.files import report_files, training_files
from trainguard.rules.parameters import Defaults

_COUNTED = HARMLESS_COUNTERS | {UNREAD_PARTS, CUT_FILES}
"""No fault of anybody, or counted by what is wrong with the parts."""


class Documented:
    """The ``documented`` reading with a person's settings; ``rule``, ``module:Class``, replaces all rules."""

    def __init__(
        self,
        place: str,
        *,
        params: Path | None = None,
        prices: Path | None = None,
        defaults: Defaults = "documented",
        instance_type: str | None = None,
        framework_expected: bool = False,
        rule: str | None = None,
    ) -> None:
        of_all = params if rule is None else None
        self._given = given_settings(
            of_all, prices, instance_type, framework_expected=framework_expected, defaults=defaults
        )
        self._plan = FAMILIES.plan(self._given.job(""), defaults=defaults, prices=self._given.prices)
        if rule is not None:
            self._plan = only(self._plan, *rule_from(rule, params))
        self._profile = open_job(place)

    @property
    def place(self) -> str:
        """Where the files lie."""
        return self._profile.source.place

    def analyze(self, progress: Progress) -> Outcome:
        """Evaluate the job; raises as `evaluated_profile` does."""
        described = described_job(self._profile.source, self._given.job(self._profile.root.job))
        judged = evaluated_profile(self._profile, described.job, self._plan, progress, timelines=False)
        built = judged.report()
        notes = [*unpriced(self._given.instance_type, self._given.prices), *judged.notes]
        return _outcome(self._profile, built, described, self._of_training(judged, built), notes)

    def _of_training(self, judged: EvaluatedProfile, built: BuiltReport) -> dict[str, bytes]:
        """Return a report for each rule of training, and for a model of XGBoost its files."""
        if judged.training is None or self._profile.training is None:
            return {}
        reports, job = debugger_reports(judged.training), self._profile.root.job
        shown = digest_training(self._profile.training, job, judged.training, scalar_names(self._plan))
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
        cost=None if finding is None else finding.cost,
        measured=rule.measured,
        threshold=rule.threshold,
        times_fired=rule.times_fired,
        violations=rule.violations,
        data_points=rule.data_points,
        parameters=rule.parameters,
    )
