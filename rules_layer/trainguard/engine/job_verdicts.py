"""The verdicts of a whole job, from its nodes' states."""

from collections import defaultdict
from dataclasses import replace

import msgspec

from trainguard.engine.closing import final
from trainguard.engine.combine import combine
from trainguard.engine.correlate import add_framework
from trainguard.engine.episodes import Episode
from trainguard.engine.framework_stream import MICROSECONDS
from trainguard.engine.guard import shown
from trainguard.engine.interruptions import interruptions
from trainguard.engine.plan import RulePlan
from trainguard.engine.slots import Fire, RuleSlots, Verdict, gone_rules
from trainguard.engine.streams import JobStreams
from trainguard.errors import RuleFailedError
from trainguard.pricing.cost import Account
from trainguard.records import JOB_NODE, JobRecord, NodeKey, Status
from trainguard.rules.judgement import Judgement
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.protocol import AnyJobRule, RuleParameters
from trainguard.rules.views import JobView, NodeFacts

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
    add_framework(by_node, plan, streams)
    view, failed = job_view(job, plan, streams)
    slots = RuleSlots(plan.job, streams.state.slots, plan)

    def judge(rule: AnyJobRule, _: None, parameters: RuleParameters) -> Judgement:
        if rule.name in failed:
            return Judgement(Status.ERROR, failed[rule.name])
        return rule.judge(shown(rule, view), parameters)

    fires = slots.run(None, judge, through=streams.through or 0.0, interval_s=plan.interval_s)
    of_job = {each.rule: _settled(each) for each in slots.verdicts(judge, interval_s=plan.interval_s)}
    verdicts = []
    for rule in plan.rules:
        parts = dict(by_node.get(rule, {}))
        if rule in of_job and (parts or rule not in plan.node_rules):
            parts[JOB_NODE] = of_job[rule]
        verdicts.append(combine(rule, parts, len(view.nodes)) if parts else _without_data(rule, job, plan))
    if job.closing and streams.closed:
        verdicts = [final(verdict, streams.through) for verdict in verdicts]
    known = {verdict.rule for verdict in verdicts} | {PROFILER_REPORT}
    verdicts.extend(
        Verdict(name, Judgement(Status.ERROR, str(fault)), Episode())
        for name, fault in plan.faults.items()
        if name not in known
    )
    verdicts.extend(
        Verdict(name, Judgement(Status.DISABLED, f"rule_to_invoke is {', '.join(plan.rules)}."), Episode())
        for name in plan.disabled
        if name not in plan.faults
    )
    system = [stream.state.slots for stream in streams.system.values()]
    framework = [stream.state.slots for stream in streams.framework.values()]
    verdicts.extend(gone_rules([streams.state.slots, *system, *framework], plan))
    return verdicts, fires


def account_of(job: JobRecord, plan: RulePlan, streams: JobStreams) -> Account:
    """Return what the whole job has to pay for so far, as many nodes as SageMaker or the profile knows."""
    nodes = len({*streams.system, *streams.framework})
    return Account(
        instance_type=job.instance_type,
        started_at=_started_at(job, streams),
        through=streams.through,
        nodes=max(nodes, job.instance_count or 0),
        prices=plan.prices,
        unpaid_s=sum(end - start for start, end in _interruptions(streams)),
    )


def _started_at(job: JobRecord, streams: JobStreams) -> float | None:
    """Return the training start as SageMaker says, or the first sample's time if that is earlier."""
    starts = (job.started_at, *(stream.state.kept.first_sample_at for stream in streams.system.values()))
    return min((at for at in starts if at is not None), default=None)


def _settled(verdict: Verdict) -> Verdict:
    """Count one violation an episode: how often a tick looks at a job is no property of the job."""
    episode = verdict.episode
    return replace(verdict, episode=msgspec.structs.replace(episode, violations=episode.times_fired, judged=0))


def job_view(job: JobRecord, plan: RulePlan, streams: JobStreams) -> tuple[JobView, dict[str, str]]:
    """Return what the rules over the whole job are shown, and of each joined rule that failed on a node the fault."""
    nodes, failed = {}, {}
    for node in sorted({*streams.system, *streams.framework}):
        nodes[node], faults = _node_facts(node, plan, streams)
        failed.update(faults)
    first_steps = (stream.state.first_step_us for stream in streams.framework.values())
    first_step_us = min((at for at in first_steps if at is not None), default=None)
    view = JobView(
        started_at=_started_at(job, streams),
        system_through=streams.system_through,
        first_step_at=None if first_step_us is None else first_step_us / MICROSECONDS,
        framework_expected=job.framework_expected,
        framework_seen=any(key.stream == "framework" and record.cursors for key, record in streams.records.items()),
        closed=streams.closed,
        nodes=nodes,
        interruptions=_interruptions(streams),
        step_runs=tuple(
            (start / MICROSECONDS, end / MICROSECONDS)
            for stream in streams.framework.values()
            for start, end in stream.state.step_runs_us
        ),
    )
    return view, failed


def _interruptions(streams: JobStreams) -> tuple[tuple[float, float], ...]:
    return interruptions((stream.state.kept, stream.state.through) for stream in streams.system.values())


def _node_facts(node: str, plan: RulePlan, streams: JobStreams) -> tuple[NodeFacts, dict[str, str]]:
    system, framework = streams.system.get(node), streams.framework.get(node)
    collected, failed = {}, {}
    for rule in plan.joined:
        if framework is None:
            break
        try:
            collected[rule.name] = framework.collected(rule.name)
        except RuleFailedError as fault:
            failed[rule.name] = f"{node}: {fault}"
    facts = NodeFacts(
        node=node,
        system=None if system is None else system.view(closed=streams.closed),
        cores=0 if system is None else system.state.cores,
        framework=None if framework is None else framework.view(closed=streams.closed),
        collected=collected,
    )
    return facts, failed


def _without_data(rule: str, job: JobRecord, plan: RulePlan) -> Verdict:
    if rule in plan.faults:
        judgement = Judgement(Status.ERROR, str(plan.faults[rule]))
    elif job.framework_expected or all(rule != each.name for each in plan.framework):
        judgement = Judgement(Status.WAITING_FOR_DATA, "no profile object that the rule needs was read yet.")
    else:
        judgement = Judgement(Status.NOT_APPLICABLE, "This job has written no framework metrics, which the rule needs.")
    return Verdict(rule, judgement, Episode())
