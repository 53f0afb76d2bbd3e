"""What a rule waits for, and what would make it fire or clear."""

from collections.abc import Callable, Mapping

import msgspec

from trainguard.cli.output.rows import iso
from trainguard.cli.services.effective_parameters import setting_of
from trainguard.core.records import FIRST_FAMILY, JobRecord, RuleRow, Status
from trainguard.core.units import show_duration
from trainguard.engine.jobs.job_description import FRAMEWORK_EXPECTED, FRAMEWORK_TAG, NAMESPACE
from trainguard.engine.plan import RulePlan
from trainguard.engine.settings.job_settings import TRAINING_RULES
from trainguard.rules.family_rules import bare
from trainguard.rules.parameters import takes_settings
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import spec_of
from trainguard.rules.spec import LOADER_SECONDS, POINTS

_ENDED = "The job has ended: this verdict is final."
_SETTINGS_ARE_READ_ONCE = "Settings are read once, when a job becomes known: a change holds for the next job."


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How far a rule's patience is; ``left`` until a verdict, in ``counts``, and ``left_s`` are None where unknown."""

    seen: int
    needed: int
    counts: str
    left: int
    left_s: float | None
    streak: int | None
    window_points: int | None
    window_from: str | None
    window_to: str | None


def patience_of(row: RuleRow, interval_s: float | None) -> Patience | None:
    """Read how far patience is, in every status; None of a rule without patience or window."""
    progress = row.progress
    if progress is None:
        return None
    spec = spec_of(row.rule)
    waits = row.status is Status.WARMING_UP
    left = max(progress.needed - progress.seen + (not spec.at_patience), 0) if waits else 0
    spacing = {POINTS: interval_s, LOADER_SECONDS: 1.0}.get(spec.counts)
    return Patience(
        seen=min(progress.seen, progress.needed),
        needed=progress.needed,
        counts=spec.counts,
        left=left,
        left_s=None if spacing is None or interval_s is None else left * spacing,
        streak=progress.streak,
        window_points=progress.window_points,
        window_from=iso(progress.window_start),
        window_to=iso(progress.window_end),
    )


def next_steps(row: RuleRow, plan: RulePlan, record: JobRecord | None) -> list[str]:
    """Say what would make a rule judge, fire or clear; ``record`` is None of an expired job."""
    if row.status is Status.ERROR:
        return _of_error(row, plan)
    if row.status is Status.DISABLED and row.rule in plan.unchosen:
        named, given = f"{NAMESPACE}{TRAINING_RULES}", f"{NAMESPACE}{bare(row.rule)}_<parameter>"
        return [f"It runs where {named} names it, or where {given} is set.", _SETTINGS_ARE_READ_ONCE]
    if row.status is Status.DISABLED:
        return _of_disabled({} if record is None else record.rule_settings)
    if record is None or not record.active:
        return [_ENDED]
    if row.status is Status.NOT_APPLICABLE:
        return _of_missing(row, record)
    return _BY_STATUS[row.status](row, plan)


def _of_disabled(settings: Mapping[str, str]) -> list[str]:
    setting = setting_of(PROFILER_REPORT, "rule_to_invoke", settings)
    tag = f"the tag {NAMESPACE}{setting}" if setting else "the setting rule_to_invoke"
    return [f"It runs where {tag} is not set.", _SETTINGS_ARE_READ_ONCE]


def _of_error(row: RuleRow, plan: RulePlan) -> list[str]:
    # Every setting of an unknown rule would look wrong.
    fault = plan.faults.get(row.rule) if takes_settings(row.rule) else None
    if fault is None:
        return ["A rule that has failed is not run there again; the other rules go on."]
    where = f" from the {fault.source}" if fault.source else ""
    return [f"Set {NAMESPACE}{fault.field} to {fault.expected}, or remove it{where}.", _SETTINGS_ARE_READ_ONCE]


def _of_fire(row: RuleRow, plan: RulePlan) -> list[str]:
    if row.rule == PROFILER_REPORT:
        return ["It clears when the episodes of all rules have ended."]
    parameters = plan.parameters.get(row.rule)
    if parameters is None:
        return []
    same_name = [rule for rules in plan.by_family.values() for rule in rules if rule.name == row.rule]
    span = max((rule.clear_after_s(parameters, plan.interval_s) for rule in same_name), default=0.0)
    after = f"after {show_duration(span)} of profile in which no evaluation finds its condition"
    return [
        f"It clears {after if span else 'at the first evaluation that does not find its condition'}.",
        "A later finding is a new fire with its own alert.",
    ]


def _of_patience(row: RuleRow, plan: RulePlan) -> list[str]:
    patience, spec = patience_of(row, plan.interval_s), spec_of(row.rule)
    if patience is None and spec.family != FIRST_FAMILY:
        return [f"A verdict needs more {spec.counts}."]
    if patience is None or patience.left == 0:
        return ["A verdict comes when enough of the newest points have samples of GPUs in use."]
    text = f"A verdict needs {patience.left:,} more {patience.counts}"
    if patience.counts == POINTS and patience.left_s is not None:
        at = f"{plan.interval_s:g} s" if plan.interval_s >= 1.0 else f"{plan.interval_s * 1_000.0:g} ms"
        text += f" ({show_duration(patience.left_s)} at {at}); they count while GPUs are in use"
    return [f"{text}."]


def _of_awaited(row: RuleRow, _: RulePlan) -> list[str]:
    inputs = spec_of(row.rule).inputs
    if "framework" in inputs:
        return ["It waits for framework events: training steps, or fetches of data loaders."]
    if "system" in inputs:
        return ["It waits for system metrics, which a profiled job uploads once a minute."]
    if row.rule == PROFILER_REPORT:
        return ["It waits for the first verdict of another rule."]
    return ["It waits for its data."]


def _of_missing(row: RuleRow, record: JobRecord) -> list[str]:
    if "framework" not in spec_of(row.rule).inputs or record.framework_expected:
        return []
    return [
        "It evaluates jobs that write framework metrics.",
        f"Where a job should write them, tag it {FRAMEWORK_TAG}={FRAMEWORK_EXPECTED}: then it waits for them.",
    ]


def _of_quiet(row: RuleRow, _: RulePlan) -> list[str]:
    if spec_of(row.rule).informs_only:
        return ["It never fires: it sums up."]
    if row.rule == PROFILER_REPORT:
        return ["It fires when one of the other rules does."]
    return ["It fires once its condition holds; each episode is one alert."]


_BY_STATUS: Mapping[Status, Callable[[RuleRow, RulePlan], list[str]]] = {
    Status.FIRED: _of_fire,
    Status.OK: _of_quiet,
    Status.WARMING_UP: _of_patience,
    Status.WAITING_FOR_DATA: _of_awaited,
}
