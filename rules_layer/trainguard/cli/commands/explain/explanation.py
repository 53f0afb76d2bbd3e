"""Explains a rule's state: from rows to a typed document, in words with numbers. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from trainguard.cli.commands.explain.next_steps import Patience, next_steps, patience_of
from trainguard.cli.output.result import SCHEMA_VERSION
from trainguard.cli.output.rows import (
    StopEntry,
    by_node,
    has_fired,
    iso,
    measured_as,
    row_fields,
    stop_entry,
    with_unit,
)
from trainguard.cli.services.effective_parameters import EffectiveParameter, Value, effective_parameters, value_text
from trainguard.cli.services.names import similar
from trainguard.core.errors import UnknownNameError
from trainguard.core.finding import EpisodeEntry, Fact, Finding, Severity
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


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The rule on one node."""

    node: str
    status: Status
    measured: float | None
    threshold: float | None
    unit: str
    worst: str | None
    data_points: int
    patience: str | None
    times_fired: int
    fired_at: str | None
    reason: str
    episodes: list[EpisodeEntry]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the newest fire: the action on the job, the alert, the report."""

    fire_id: str | None
    action: str | None
    action_at: str | None
    alert_id: str | None
    report_uri: str | None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A rule's state on a job, or on one node of it.

    ``fires_when`` has the parameters in force. ``comparison`` is of the measure and its threshold, ``outlook`` what
    would make the rule judge, fire or clear. ``violations`` counts evaluations. ``nodes`` has the worst first.
    """

    schema_version: str = SCHEMA_VERSION
    generated_at: str
    job: str
    rule: str
    node: str | None
    status: Status
    severity: Severity | None
    meaning: str
    reason: str
    fires_when: str
    measured: float | None
    threshold: float | None
    comparison: str | None
    worst: str | None
    data_points: int
    patience: Patience | None
    evaluated_through: str | None
    fired_at: str | None
    times_fired: int
    episodes_ended: int
    violations: int
    affected_percent: float | None
    wasted_percent: float | None
    cost_lost: str | None
    episodes: list[EpisodeEntry]
    earlier_episodes: int
    done: Done | None
    stop: StopEntry | None
    evaluated: bool | None
    evaluated_because: str | None
    is_staged: bool
    is_muted: bool
    setting_faults: list[str]
    rules_elsewhere: dict[str, str]
    outlook: list[str]
    advice: str | None
    finding_kind: str
    facts: list[Fact]
    nodes: list[NodeState]
    parameters: list[EffectiveParameter]


_OF_ROW = frozenset(Explanation.__struct_fields__) - {"rule", "node", "patience", "stop", "parameters"}


@dataclass(frozen=True, slots=True)
class _Subject:
    row: RuleRow
    of_job: RuleRow | None
    nodes: Sequence[RuleRow]


def explained(
    job: str, record: JobRecord | None, rows: Sequence[RuleRow], *, rule: str, node: str | None, now: float
) -> Explanation:
    """Explain a rule's state; ``record`` None: expired, ``node`` None: the whole job. Raises UnknownNameError."""
    known = record or JobRecord(job=job, arn="", bucket="", prefix="", active=False)
    plan = FAMILIES.plan(known)
    subject = _subject(job, rows, rule, node, _unread(rule, plan))
    row = subject.row
    values = row.parameters or _planned(plan, rule)
    tagged = replayed_job(job) is None
    alerts = known.policy.alerts
    return Explanation(
        generated_at=str(iso(now)),
        job=job,
        rule=rule,
        node=node,
        **row_fields(row, _OF_ROW),
        meaning=_meaning(row, plan, ended=record is not None and not record.active),
        fires_when=condition(rule, values),
        comparison=comparison(row),
        patience=patience_of(row, plan.interval_s if known.active else None),
        episodes_ended=known.episodes.get(rule, 0),
        done=_done(subject.of_job),
        stop=None if subject.of_job is None else stop_entry(subject.of_job),
        evaluated=None if record is None else record.policy.evaluated,
        evaluated_because=None if record is None else record.policy.why,
        is_staged=alerts.is_staged(rule),
        is_muted=alerts.is_muted(rule),
        setting_faults=list(known.faults),
        rules_elsewhere=dict(known.rules_elsewhere),
        outlook=next_steps(row, plan, record),
        nodes=[_node_state(stored) for stored in subject.nodes],
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


def _unread(rule: str, plan: RulePlan) -> tuple[Status, str]:
    if rule in plan.unchosen:
        return Status.DISABLED, _NOT_CHOSEN
    spec = spec_of(rule)
    reason = _NOTHING_READ if spec.family == FIRST_FAMILY else _NOTHING_TO_JUDGE.format(spec.looks_at)
    return Status.WAITING_FOR_DATA, reason


def _subject(job: str, rows: Sequence[RuleRow], rule: str, node: str | None, unread: tuple[Status, str]) -> _Subject:
    nodes = by_node(rows).get(rule, [])
    of_job = next((each for each in rows if each.rule == rule and each.node is None), None)
    if node is None:
        status, reason = unread
        row = RuleRow(job, Finding(rule, None, reason), status) if of_job is None else of_job
        return _Subject(row, of_job, nodes)
    of_node = next((each for each in nodes if each.node == node), None)
    if of_node is None:
        names = [str(each.node) for each in nodes]
        place = f"what {rule} says about job {job}" + ("" if names else ", which it judges as a whole")
        raise UnknownNameError("node", node, place, similar(node, names) or names[:3])
    return _Subject(of_node, of_job, [])


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


def _done(of_job: RuleRow | None) -> Done | None:
    if of_job is None or of_job.fire_id is None:
        return None
    return Done(
        fire_id=of_job.fire_id,
        action=of_job.action,
        action_at=iso(of_job.action_at),
        alert_id=of_job.alert_id,
        report_uri=of_job.report_uri,
    )


def _node_state(row: RuleRow) -> NodeState:
    _, unit = measured_as(row)
    return NodeState(**row_fields(row, NodeState.__struct_fields__) | {"unit": unit})
