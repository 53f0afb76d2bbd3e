"""Explains a rule's state: from rows to words with numbers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainguard.cli.commands.explain.next_steps import Patience, next_steps, patience_of
from trainguard.cli.output.rows import by_node, has_fired, iso, measured_as, row_fields, row_json, with_unit
from trainguard.cli.services.effective_parameters import EffectiveParameter, Value, effective_parameters, value_text
from trainguard.cli.services.job_list import expired_record
from trainguard.cli.services.names import similar
from trainguard.core.errors import UnknownNameError
from trainguard.core.finding import Finding
from trainguard.core.records import FIRST_FAMILY, JobRecord, RuleRow, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.replay_names import replayed_job
from trainguard.engine.plan import RulePlan
from trainguard.rules.registry import spec_of

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
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
        """Return it for machines."""
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
            "nodes": [_node_json(each) for each in self.nodes],
            "parameters": self.parameters,
        }


def _node_json(row: RuleRow) -> dict[str, Any]:
    return row_fields(row, (*_OF_NODE, "reason", "episodes")) | {"unit": measured_as(row)[1]}


def explained(
    job: str, record: JobRecord | None, rows: Sequence[RuleRow], *, rule: str, node: str | None
) -> Explanation:
    """Explain a rule's state; ``record`` None: expired, ``node`` None: the whole job. Raises UnknownNameError."""
    known = record or expired_record(job)
    plan = FAMILIES.plan(known)
    nodes = by_node(rows).get(rule, [])
    of_job = next((each for each in rows if each.rule == rule and each.node is None), None)
    row = _of_node(job, rule, node, nodes) if node is not None else of_job or _unread(job, rule, plan)
    values = row.parameters or _planned(plan, rule)
    tagged = replayed_job(job) is None
    return Explanation(
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
        parameters=effective_parameters(
            rule, values, known.rule_settings, tagged=tagged, sources=known.setting_sources
        ),
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


def _planned(plan: RulePlan, rule: str) -> Mapping[str, Value]:
    parameters = plan.parameters.get(rule)
    return {} if parameters is None else parameters.as_given()


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
