"""All that the rules over framework events say about random jobs, minute by minute."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.answers.random_framework import MINUTE_S, START, RandomJob, random_job
from tests.answers.recorded import compare, judged, plain_result
from tests.unit.rules.node_replay import node_minutes, series
from trainguard.formats.profile.columns import FrameworkEvents
from trainguard.rules.dataloader.rule import Dataloader, DataloaderParameters
from trainguard.rules.dataloader.series import LoaderState, LoadingProcess
from trainguard.rules.max_initialization_time.rule import MaxInitializationTime, MaxInitializationTimeParameters
from trainguard.rules.protocol import AnyFrameworkRule, RuleParameters
from trainguard.rules.registry import FRAMEWORK_RULES
from trainguard.rules.rule_inputs import FrameworkView, JobView, NodeFacts
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.step_outlier.evaluation import StepOutlierParameters
from trainguard.rules.step_outlier.rule import StepOutlier

FOLDER = Path(__file__).with_name("framework")
JOBS, STARTS = 15, 60
# Parameters of each second job; the other jobs, and other rules, have the documented ones.
EAGER: Mapping[str, RuleParameters] = {
    "StepOutlier": StepOutlierParameters(stddev=2.0, n_outliers=2, slow_share=5.0),
    "Dataloader": DataloaderParameters(min_threshold=25.0, max_threshold=75.0, patience=30),
}


def _answer(results: Iterator[RuleResult]) -> dict[str, Any]:
    """Return what was said at last, and a digest of all that was said."""
    return judged([plain_result(each) for each in results])


def _first_step(events: FrameworkEvents) -> float:
    return min((int(batch.starts_us.min()) / 1e6 for batch in events.steps), default=float("inf"))


def _judged_node(rule: AnyFrameworkRule, job: RandomJob, node: str, given: RuleParameters) -> Iterator[RuleResult]:
    """Yield what a rule says about a node after each minute, and when it has ended."""
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
def test_random_steps_by_node_match_the_reviewed(
    rule: AnyFrameworkRule,
) -> None:
    answers = {}
    for seed in range(JOBS):
        given = EAGER.get(rule.name, rule.parameters_type()) if seed % 2 else rule.parameters_type()
        for node in random_job(seed).series:
            answers[f"job {seed}, {node}"] = _answer(_judged_node(rule, random_job(seed), node, given))
    compare(answers, FOLDER / f"{rule.name}.json")


def judged_job(rule: Dataloader | StepOutlier, seed: int) -> Iterator[RuleResult]:
    """Yield the verdicts on a job's steps or data loaders after each minute, and at last of the job that has ended."""
    job = random_job(seed)
    states: dict[str, Any]
    given: Any = EAGER[rule.name] if seed % 2 else rule.parameters_type()
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


@pytest.mark.parametrize("rule", [Dataloader(), StepOutlier()], ids=lambda rule: rule.name)
def test_steps_of_random_jobs_match_the_reviewed(
    rule: Dataloader | StepOutlier,
) -> None:
    answers = {f"job {seed}": _answer(judged_job(rule, seed)) for seed in range(JOBS)}
    compare(answers, FOLDER / f"{rule.name}.json")


Spans = Sequence[tuple[int, int]]
# Minutes without samples: too few for a restart, just enough, two of them, one before the start and one over it.
RESTARTS: Sequence[Spans] = ((), (), ((8, 12),), ((8, 13),), ((28, 33),), ((8, 13), (41, 50)), ((-9, -2),), ((-9, 3),))


def initialized(seed: int) -> Iterator[RuleResult]:
    """Yield what is said about a job's initialization at minutes about the thresholds, and when the job has ended."""
    random = np.random.default_rng(seed)
    rule, given = MaxInitializationTime(), MaxInitializationTimeParameters(threshold=20.0 if seed % 3 else 5.0)
    missing = RESTARTS[int(random.integers(len(RESTARTS)))]
    first = [None, None, -1, 0, 4, 5, 6, 20, 21, 26, 33, 38, 53, 75][int(random.integers(14))]
    again = int(random.choice([0, 5, 6, 20, 21, 99]))
    working_from, fetching_from = (int(each) for each in random.choice([0, 1, 3, 20, 99], size=2))
    expected, started = random.random() < 0.7, random.random() < 0.9
    for at, closed in [*((each, False) for each in (0, 5, 6, 11, 12, 20, 26, 27, 40, 60, 90)), (91, True)]:
        runs = [] if first is None else _runs(first, again, missing, at)
        nodes = {"algo-1": _at_work(at - working_from, at - fetching_from), "algo-2": NodeFacts("algo-2")}
        yield rule.judge(
            JobView(
                started_at=START if started else None,
                system_through=START + MINUTE_S * at if at else None,
                first_step_at=min((begin for begin, _ in runs), default=None),
                framework_expected=expected,
                framework_seen=at > 5,
                closed=closed,
                nodes=nodes,
                interruptions=tuple((START + MINUTE_S * a, START + MINUTE_S * b) for a, b in missing if b <= at),
                step_runs=tuple(runs),
            ),
            given,
        )


def _runs(first: int, again: int, missing: Spans, at: int) -> list[tuple[float, float]]:
    """Return when there were steps until a minute: from the first one on, and ``again`` minutes after each restart."""
    begins = [first, *(end + again for _, end in missing if end > first)]
    ends = [*(begin for begin, end in missing if end > first), at]
    pairs = zip(begins, ends, strict=True)
    return [(START + MINUTE_S * a, START + MINUTE_S * min(b, at)) for a, b in pairs if a < b and a <= at]


@cache
def _system() -> Any:
    (minute,) = node_minutes(series(np.full(2, 90.0), interval_s=10.0), closed=False)
    return minute.view


def _at_work(working: int, fetching: int) -> NodeFacts:
    """Return a node whose GPUs have worked, and whose loader has fetched, for so many minutes."""
    process = LoadingProcess("algo-1-905", first_us=10**6, last_us=10**6 + max(fetching, 0) * 60 * 10**6)
    loaders = LoaderState([LoadingProcess("algo-1-904"), process])
    system = replace(_system(), kept_total=6 * max(working, 0))
    return NodeFacts("algo-1", system, collected={"Dataloader": loaders} if fetching > 0 else {})


def test_initialization_of_random_starts_matches_the_reviewed() -> None:
    answers = {f"start {seed}": _answer(initialized(seed)) for seed in range(STARTS)}
    compare(answers, FOLDER / "MaxInitializationTime.json")
