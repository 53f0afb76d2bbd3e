"""The verdicts of a whole job, from its nodes' states."""

from collections import defaultdict
from dataclasses import replace

import msgspec

from trainguard.engine.combine import combine
from trainguard.engine.episodes import Episode
from trainguard.engine.framework_stream import MICROSECONDS
from trainguard.engine.plan import RulePlan
from trainguard.engine.slots import Fire, RuleSlots, Verdict
from trainguard.engine.streams import JobStreams
from trainguard.records import JobRecord, NodeKey, Status
from trainguard.rules.protocol import JobView, Judgement

VANISHED_S = 900.0
"""A node this far behind the others has vanished, whatever the rule's windows."""


def node_verdicts(job: JobRecord, streams: JobStreams) -> dict[str, dict[str, Verdict]]:
    """Return the verdicts by rule and node; the episode of a node that has vanished is over."""
    verdicts: defaultdict[str, dict[str, Verdict]] = defaultdict(dict)
    ahead = streams.through or 0.0
    for node, system in streams.system.items():
        closed = streams.records[NodeKey(job.job, node, "system")].closed
        for verdict in system.verdicts(closed=closed):
            verdicts[verdict.rule][node] = _without_the_vanished(verdict, system.state.through, ahead)
    for node, framework in streams.framework.items():
        closed = streams.records[NodeKey(job.job, node, "framework")].closed
        for verdict in framework.verdicts(closed=closed):
            verdicts[verdict.rule][node] = _without_the_vanished(verdict, framework.state.through, ahead)
    return dict(verdicts)


def _without_the_vanished(verdict: Verdict, through: float | None, ahead: float) -> Verdict:
    """Take a node's episode as over when the job went on for three windows without it, or when its rule has failed.

    Else a node that fired and vanished would keep the job's episode open, and no later fire would be alerted.
    """
    vanished = ahead - (through or 0.0) >= max(verdict.clear_after_s, VANISHED_S)
    if not verdict.episode.is_open or not (vanished or verdict.judgement.status is Status.ERROR):
        return verdict
    episode = msgspec.structs.replace(verdict.episode, is_open=False)
    judgement = verdict.judgement
    if vanished:
        reason = f"{judgement.reason} Nothing was heard of the node for the last {ahead - (through or 0.0):,.0f} s."
        judgement = replace(judgement, status=Status.OK, reason=reason)
    return Verdict(verdict.rule, judgement, episode, verdict.clear_after_s)


def job_verdicts(job: JobRecord, plan: RulePlan, streams: JobStreams) -> tuple[list[Verdict], list[Fire]]:
    """Return the job's verdict of every rule, and the fires of rules over the whole job that began.

    Moves the episodes in ``streams.state``.
    """
    by_node = node_verdicts(job, streams)
    verdicts = [
        combine(rule.name, by_node[rule.name]) if rule.name in by_node else _without_data(rule.name, job, plan)
        for rule in (*plan.system, *plan.framework)
    ]
    verdicts.extend(
        Verdict(name, Judgement(Status.ERROR, str(fault)), Episode())
        for name, fault in plan.faults.items()
        if name not in {verdict.rule for verdict in verdicts} and name not in {rule.name for rule in plan.job}
    )
    view = job_view(job, streams)
    slots = RuleSlots(plan.job, streams.state.slots, plan)
    fires = slots.run(
        None,
        lambda rule, _, parameters: rule.judge(view, parameters),
        through=streams.through or 0.0,
        interval_s=plan.interval_s,
    )
    verdicts.extend(
        slots.verdicts(lambda rule, _, parameters: rule.judge(view, parameters), interval_s=plan.interval_s)
    )
    return verdicts, fires


def job_view(job: JobRecord, streams: JobStreams) -> JobView:
    """Return what the rules over the whole job are shown."""
    first_samples = (stream.state.kept.first_sample_at for stream in streams.system.values())
    first_steps = (stream.state.first_step_us for stream in streams.framework.values())
    starts = (job.started_at, *first_samples)
    first_step_us = min((at for at in first_steps if at is not None), default=None)
    return JobView(
        started_at=min((at for at in starts if at is not None), default=None),
        system_through=streams.system_through,
        first_step_at=None if first_step_us is None else first_step_us / MICROSECONDS,
        framework_expected=job.framework_expected,
        framework_seen=any(key.stream == "framework" and record.cursors for key, record in streams.records.items()),
        closed=streams.closed,
    )


def _without_data(rule: str, job: JobRecord, plan: RulePlan) -> Verdict:
    if rule in plan.faults:
        judgement = Judgement(Status.ERROR, str(plan.faults[rule]))
    elif job.framework_expected or all(rule != each.name for each in plan.framework):
        judgement = Judgement(Status.WAITING_FOR_DATA, "No profile object was read yet.")
    else:
        judgement = Judgement(Status.NOT_APPLICABLE, "This job has written no framework metrics, which the rule needs.")
    return Verdict(rule, judgement, Episode())
