"""All that the rules over framework events say of random jobs, minute by minute."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.answers.random_framework import MINUTE_S, START, RandomJob, random_job
from tests.answers.recorded import compare, plain_result, rounded
from tests.unit.rules.node_replay import node_minutes
from trainguard.rules.dataloader import Dataloader, DataloaderParameters
from trainguard.rules.protocol import AnyFrameworkRule, RuleParameters
from trainguard.rules.registry import FRAMEWORK_RULES
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.step_outlier import StepOutlierParameters
from trainguard.telemetry.framework import FrameworkEvents

FOLDER = Path(__file__).with_name("framework")
JOBS = 15
EAGER: Mapping[str, RuleParameters] = {
    "StepOutlier": StepOutlierParameters(stddev=2.0, n_outliers=2, slow_share=5.0),
    "Dataloader": DataloaderParameters(min_threshold=25.0, max_threshold=75.0, patience=30),
}
"""Parameters of each second job; the other jobs, and other rules, have the documented ones."""


def _answer(judged: Iterator[RuleResult]) -> dict[str, Any]:
    """Return what was said at last, and a digest of all that was said; histograms are in the digest alone."""
    said = rounded([plain_result(each) for each in judged])
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
    return {"all": digest, **_without_histograms(said[-1])}


def _without_histograms(said: Any) -> Any:
    if isinstance(said, dict):
        return {key: _without_histograms(each) for key, each in said.items() if key != "histogram"}
    return [_without_histograms(each) for each in said] if isinstance(said, list) else said


def _first_step(events: FrameworkEvents) -> float:
    return min((int(batch.starts_us.min()) / 1e6 for batch in events.steps), default=float("inf"))


def _judged_node(rule: AnyFrameworkRule, job: RandomJob, node: str, given: RuleParameters) -> Iterator[RuleResult]:
    """Yield what a rule says of a node after each minute, and when it has ended."""
    state, first = rule.state_type(), float("inf")

    def view(number: int, *, closed: bool) -> FrameworkView:
        first_step_at = first if first < START + 1e9 and number % 4 else None
        return FrameworkView(node, START + MINUTE_S * number, closed=closed, first_step_at=first_step_at)

    for number, minute in enumerate(job.minutes, 1):
        for events in minute[node]:
            first = min(first, _first_step(events))
            rule.observe(state, events, given)
        yield rule.judge(state, view(number, closed=False), given)
    yield rule.judge(state, view(len(job.minutes), closed=True), given)


@pytest.mark.parametrize("rule", FRAMEWORK_RULES, ids=lambda rule: rule.name)
def test_given_random_jobs_when_a_rule_judges_each_nodes_steps_then_all_that_it_says_is_as_reviewed(
    rule: AnyFrameworkRule,
) -> None:
    answers = {}
    for seed in range(JOBS):
        given = EAGER.get(rule.name, rule.parameters_type()) if seed % 2 else rule.parameters_type()
        for node in random_job(seed).series:
            answers[f"job {seed}, {node}"] = _answer(_judged_node(rule, random_job(seed), node, given))
    compare(answers, FOLDER / f"{rule.name}.json")


def _judged_loaders(seed: int) -> Iterator[RuleResult]:
    """Yield what is said of a job's data loaders after each minute, and at last of the job that has ended."""
    rule, job = Dataloader(), random_job(seed)
    given = EAGER[rule.name] if seed % 2 else DataloaderParameters()
    assert isinstance(given, DataloaderParameters)
    states = {node: rule.state_type() for node in job.series}
    views = {node: [each.view for each in node_minutes(job.series[node], closed=False)] for node in job.series}
    for number, minute in enumerate([*job.minutes, {}], 1):
        for node, objects in minute.items():
            for events in objects:
                rule.observe(states[node], events, given)
        facts = {
            node: NodeFacts(
                node,
                views[node][min(number, len(job.minutes))] if seed % 3 else None,
                cores=job.cores[node] if number > 3 else 0,
                collected={rule.name: states[node]} if number > 1 else {},
            )
            for node in job.series
        }
        shown = JobView(
            started_at=START,
            system_through=START + MINUTE_S * min(number, len(job.minutes)),
            first_step_at=None,
            framework_expected=seed % 2 > 0,
            framework_seen=number > 1,
            closed=number > len(job.minutes),
            nodes=facts,
        )
        yield rule.judge(shown, given)


def test_given_random_jobs_when_their_data_loaders_are_judged_then_all_that_is_said_is_as_reviewed() -> None:
    answers = {f"job {seed}": _answer(_judged_loaders(seed)) for seed in range(JOBS)}
    compare(answers, FOLDER / "Dataloader.json")
