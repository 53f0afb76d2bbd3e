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
from trainguard.engine.interruptions import interruptions, without_steps
from trainguard.engine.plan import RulePlan
from trainguard.engine.silence import as_heard
from trainguard.engine.slots import Fire, RuleSlots, Verdict, gone_rules
from trainguard.engine.streams import JobStreams
from trainguard.errors import RuleFailedError
from trainguard.pricing.cost import Account
from trainguard.records import JOB_NODE, JobRecord, NodeKey, Status
from trainguard.rules.judgement import Judgement
from trainguard.rules.profiler_report import PROFILER_REPORT
from trainguard.rules.protocol import AnyJobRule, RuleParameters
from trainguard.rules.registry import spec_of
from trainguard.rules.views import JobView, NodeFacts


def node_verdicts(job: JobRecord, streams: JobStreams) -> dict[str, dict[str, Verdict]]:
    """Return the verdicts by rule and node; the finding of a node that has fallen silent counts as `silence` says.

    Each kind of stream is compared with its own kind: framework objects come later than samples, and in bursts.
    """
    verdicts: defaultdict[str, dict[str, Verdict]] = defaultdict(dict)
    for node, system in streams.system.items():
        closed = streams.records[NodeKey(job.job, node, "system")].closed
        for verdict in system.verdicts(closed=closed):
            verdicts[verdict.rule][node] = as_heard(verdict, system.state.through, streams.system_through)
    for node, framework in streams.framework.items():
        closed = streams.records[NodeKey(job.job, node, "framework")].closed
        for verdict in framework.verdicts(closed=closed):
            verdicts[verdict.rule][node] = as_heard(verdict, framework.state.through, streams.framework_through)
    return dict(verdicts)


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
    of_job = {each.rule: _settled(each, plan, streams) for each in slots.verdicts(judge, interval_s=plan.interval_s)}
    fires = [_as_known(fire, of_job[fire.rule], streams) for fire in fires]
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


def _settled(verdict: Verdict, plan: RulePlan, streams: JobStreams) -> Verdict:
    """Count one violation an episode: how often a tick looks at a job is no property of the job.

    What is found on one node alone is known as far as that node was heard of, and what is found in framework events as
    far as those were.
    """
    episode = verdict.episode
    node = (verdict.judgement.worst or JOB_NODE).partition("/")[0]
    joined = any(rule.name == verdict.rule for rule in plan.joined)
    read = (streams.framework,) if joined else (streams.system, streams.framework)
    named = [of_kind[node].state.through for of_kind in read if node in of_kind]
    furthest = streams.framework_through if joined else streams.through
    through = max((mark for mark in named if mark is not None), default=furthest)
    episode = msgspec.structs.replace(episode, violations=episode.times_fired, judged=0)
    return replace(verdict, episode=episode, through=through)


def _as_known(fire: Fire, verdict: Verdict, streams: JobStreams) -> Fire:
    """Let a fire of the whole job be as old as what it is known from: its row's EvaluatedThrough, then and before.

    Else a row that speaks of the fire would look older than it, and a stop would wait in vain for a newer one.
    """
    marks = [mark for mark in (verdict.through, streams.state.through.get(fire.rule)) if mark is not None]
    return replace(fire, at=max(marks, default=fire.at))


def job_view(job: JobRecord, plan: RulePlan, streams: JobStreams) -> tuple[JobView, dict[str, str]]:
    """Return what the rules over the whole job are shown, and of each joined rule that failed on a node the fault."""
    nodes, failed = {}, {}
    for node in sorted({*streams.system, *streams.framework}):
        nodes[node], faults = _node_facts(node, plan, streams)
        failed.update(faults)
    runs = [run for stream in streams.framework.values() for run in stream.state.step_runs_us]
    steps = tuple((start / MICROSECONDS, end / MICROSECONDS) for start, end in runs)
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
        interruptions=without_steps(_interruptions(streams), steps),
        step_runs=steps,
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
    elif job.framework_expected or "framework" not in spec_of(rule).inputs:
        stream = "framework" if "framework" in spec_of(rule).inputs else "system"
        judgement = Judgement(Status.WAITING_FOR_DATA, f"no {stream} metrics were read.")
    else:
        judgement = Judgement(Status.NOT_APPLICABLE, "This job has written no framework metrics, which the rule needs.")
    return Verdict(rule, judgement, Episode())
