"""Explains a rule's state: from rows to words with numbers, and what would make it fire or clear. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainguard.cli.output.rows import by_node, has_fired, iso, measured_as, row_fields, row_json, with_unit
from trainguard.cli.services.effective_parameters import (
    EffectiveParameter,
    Value,
    effective_parameters,
    setting_of,
    value_text,
)
from trainguard.cli.services.job_list import expired_record
from trainguard.core.errors import UnknownNameError
from trainguard.core.finding import Finding
from trainguard.core.records import FIRST_FAMILY, JobRecord, RuleRow, Status
from trainguard.core.units import show_duration, similar
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.settings.job_settings import TRAINING_RULES
from trainguard.engine.settings.tag_names import FRAMEWORK_EXPECTED, FRAMEWORK_TAG, NAMESPACE
from trainguard.rules.family_rules import bare
from trainguard.rules.parameters import takes_settings
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.registry import spec_of
from trainguard.rules.spec import LOADER_SECONDS, POINTS

_ENDED = "The job has ended: this verdict is final."
_SETTINGS_ARE_READ_ONCE = "Settings are read once, when a job becomes known: a change holds for the next job."

# How far a rule's patience is; ``left`` until a verdict, in ``counts``, and ``left_s`` are None where unknown.
Patience = Mapping[str, Any]

_MEANINGS = {
    Status.FIRED: "Its condition holds, or has held in the episode that is still open.",
    Status.OK: "Its condition does not hold.",
    Status.WARMING_UP: "There is data, but less than its patience.",
    Status.WAITING_FOR_DATA: "There is no data for it yet.",
    Status.NOT_APPLICABLE: "It does not apply: its data are missing.",
    Status.DISABLED: "It does not run: `rule_to_invoke` names another rule.",
    Status.ERROR: "It has no verdict: one of its settings is wrong, or it failed.",
}
_TOO_SHORT = "The job ended with less data than its patience."
_OVER = "It has fired, and its condition no longer holds."
_NOTHING_READ = "No profile object of the job was read yet."
_NOTHING_TO_JUDGE = "Nothing that it looks at was read yet: {}."
_NOT_CHOSEN = "It does not run on the job: the job's owner did not choose it."
_DONE = ("fire_id", "action", "action_at", "alert_id", "report_uri")
_OF_NODE = ("node", "status", "measured", "threshold", "worst", "data_points", "patience", "times_fired", "fired_at")


def patience_of(row: RuleRow, interval_s: float | None) -> Patience | None:
    """Read how far patience is, in every status; None of a rule without patience or window."""
    progress = row.progress
    if progress is None:
        return None
    spec = spec_of(row.rule)
    waits = row.status is Status.WARMING_UP
    left = max(progress.needed - progress.seen + (not spec.at_patience), 0) if waits else 0
    spacing = {POINTS: interval_s, LOADER_SECONDS: 1.0}.get(spec.counts)
    return {
        "seen": min(progress.seen, progress.needed),
        "needed": progress.needed,
        "counts": spec.counts,
        "left": left,
        "left_s": None if spacing is None or interval_s is None else left * spacing,
        "streak": progress.streak,
        "window_points": progress.window_points,
        "window_from": iso(progress.window_start),
        "window_to": iso(progress.window_end),
    }


def next_steps(row: RuleRow, plan: RulePlan, record: JobRecord | None) -> list[str]:
    """Say what would make a rule judge, fire or clear; ``record`` is None of an expired job."""
    if row.status is Status.ERROR:
        return _of_error(row, plan)
    if row.status is Status.DISABLED and row.rule in plan.unchosen:
        named, given = f"{NAMESPACE}{TRAINING_RULES}", f"{NAMESPACE}{bare(row.rule)}_<parameter>"
        return [f"It runs where {named} names it, or where {given} is set.", _SETTINGS_ARE_READ_ONCE]
    if row.status is Status.DISABLED:
        setting = setting_of(PROFILER_REPORT, "rule_to_invoke", {} if record is None else record.rule_settings)
        tag = f"the tag {NAMESPACE}{setting}" if setting else "the setting rule_to_invoke"
        return [f"It runs where {tag} is not set.", _SETTINGS_ARE_READ_ONCE]
    if record is None or not record.active:
        return [_ENDED]
    if row.status is Status.NOT_APPLICABLE:
        return _of_missing(row, record)
    return _BY_STATUS[row.status](row, plan)


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
    if patience is None or patience["left"] == 0:
        return ["A verdict comes when enough of the newest points have samples of GPUs in use."]
    text = f"A verdict needs {patience['left']:,} more {patience['counts']}"
    if patience["counts"] == POINTS and patience["left_s"] is not None:
        at = f"{plan.interval_s:g} s" if plan.interval_s >= 1.0 else f"{plan.interval_s * 1_000.0:g} ms"
        text += f" ({show_duration(patience['left_s'])} at {at}); they count while GPUs are in use"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleExplanation:
    """A rule's state on a job, or on one node of it; ``nodes`` has the worst first.

    ``record`` is None of a job that has expired, ``of_job`` where the rule has no row of the job. ``fires_when`` has
    the parameters in force. ``comparison`` is of the measure and its threshold, ``outlook`` what would make the rule
    judge, fire or clear.
    """

    job: str
    record: JobRecord | None
    row: RuleRow
    of_job: RuleRow | None
    nodes: Sequence[RuleRow]
    meaning: str
    fires_when: str
    comparison: str | None
    patience: Patience | None
    outlook: Sequence[str]
    parameters: Sequence[EffectiveParameter]

    @property
    def known(self) -> JobRecord:
        """The job's item, or what stands for one that has expired."""
        return self.record or expired_record(self.job)

    def document(self, now: float) -> dict[str, Any]:
        known, policy = self.known, None if self.record is None else self.record.policy
        fired = self.of_job is not None and self.of_job.fire_id is not None
        stop = None if self.of_job is None else row_json(self.of_job)["stop"]
        return {
            "generated_at": iso(now),
            "job": self.job,
            **{
                name: value
                for name, value in row_json(self.row).items()
                if name not in (*_DONE, "progress", "counters")
            },
            "meaning": self.meaning,
            "fires_when": self.fires_when,
            "comparison": self.comparison,
            "patience": self.patience,
            "episodes_ended": known.episodes.get(self.row.rule, 0),
            "done": row_fields(self.of_job, _DONE) if self.of_job is not None and fired else None,
            "stop": stop,
            "evaluated": None if policy is None else policy.evaluated,
            "evaluated_because": None if policy is None else policy.why,
            "is_staged": known.policy.alerts.is_staged(self.row.rule),
            "is_muted": known.policy.alerts.is_muted(self.row.rule),
            "setting_faults": known.faults,
            "rules_elsewhere": known.rules_elsewhere,
            "outlook": self.outlook,
            "nodes": [
                row_fields(each, (*_OF_NODE, "reason", "episodes")) | {"unit": measured_as(each)[1]}
                for each in self.nodes
            ],
            "parameters": self.parameters,
        }


def explained(
    job: str, record: JobRecord | None, rows: Sequence[RuleRow], *, rule: str, node: str | None
) -> RuleExplanation:
    """Explain a rule's state; ``record`` None: expired, ``node`` None: the whole job. Raises UnknownNameError."""
    known = record or expired_record(job)
    plan = FAMILIES.plan(known)
    nodes = by_node(rows).get(rule, [])
    of_job = next((each for each in rows if each.rule == rule and each.node is None), None)
    row = _of_node(job, rule, node, nodes) if node is not None else of_job or _unread(job, rule, plan)
    values = row.parameters or (plan.parameters[rule].as_given() if rule in plan.parameters else {})
    return RuleExplanation(
        job=job,
        record=record,
        row=row,
        of_job=of_job,
        nodes=nodes if node is None else (),
        meaning=_meaning(row, plan, ended=record is not None and not record.active),
        fires_when=condition(rule, values),
        comparison=comparison(row),
        patience=patience_of(row, plan.interval_s if known.active else None),
        outlook=next_steps(row, plan, record),
        parameters=effective_parameters(rule, values, known),
    )


def _meaning(row: RuleRow, plan: RulePlan, *, ended: bool) -> str:
    if row.status is Status.DISABLED and row.rule in plan.unchosen:
        return "It does not run."
    if row.status is Status.OK and has_fired(row):
        return _OVER
    return _TOO_SHORT if ended and row.status is Status.WARMING_UP else _MEANINGS[row.status]


def _unread(job: str, rule: str, plan: RulePlan) -> RuleRow:
    """Return a row of a rule that has judged nothing of a job."""
    spec = spec_of(rule)
    status, reason = Status.WAITING_FOR_DATA, _NOTHING_READ
    if rule in plan.unchosen:
        status, reason = Status.DISABLED, _NOT_CHOSEN
    elif spec.family != FIRST_FAMILY:
        reason = _NOTHING_TO_JUDGE.format(spec.looks_at)
    return RuleRow(job, Finding(rule, None, reason), status)


def _of_node(job: str, rule: str, node: str, nodes: Sequence[RuleRow]) -> RuleRow:
    found = next((each for each in nodes if each.node == node), None)
    if found is None:
        names = [str(each.node) for each in nodes]
        place = f"what {rule} says about job {job}" + ("" if names else ", which it judges as a whole")
        raise UnknownNameError("node", node, place, similar(node, names) or names[:3])
    return found


def condition(rule: str, values: Mapping[str, Value]) -> str:
    """Say when a rule fires, with the parameters' values; with their names where they are not known."""
    spec = spec_of(rule)
    shown = {name: value_text(values[name]) if name in values else name for name in spec.parameters}
    return spec.condition.format_map(shown)


def comparison(row: RuleRow) -> str | None:
    """Say what was measured, and the threshold; None where nothing was. Which side fires is the condition's to say."""
    measured, threshold = row.finding.measured, row.finding.threshold
    if measured is None:
        return None
    what, unit = measured_as(row)
    text = with_unit(measured, unit) + (f" ({what})" if what else "")
    return text if threshold is None else f"{text}, threshold {with_unit(threshold, unit)}"
