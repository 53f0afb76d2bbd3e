"""What the framework did in minutes with bottlenecks: from the rings of both streams to the rule's details."""

import msgspec
import pytest

from tests.support.framework_traces import SECOND, START_US, event, read
from trainguard.engine.plan import RulePlan
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import Verdict
from trainguard.families.installed import FAMILIES
from trainguard.families.profiler.correlate import add_framework, compare_minutes
from trainguard.families.profiler.framework_stream import FrameworkState, FrameworkStream
from trainguard.families.profiler.system_stream import SystemState, SystemStream
from trainguard.records import JobRecord, Status
from trainguard.rules.bottleneck_counts import BottleneckState, MinuteCount, Tally
from trainguard.rules.bottleneck_output import BottleneckDetails, ComparedPhase
from trainguard.rules.framework_minutes import MinuteProfile
from trainguard.rules.rule_result import RuleResult
from trainguard.rules.time_table import TimeTable

FIRST = START_US // (60 * SECOND)
MINUTE = 60 * SECOND


def plan(**settings: str) -> RulePlan:
    return FAMILIES.plan(JobRecord("job", "arn", "b", "", rule_settings=settings))


def counts(*bottlenecked: int, judged: int = 120) -> list[MinuteCount]:
    return [MinuteCount(FIRST + index, judged, hits) for index, hits in enumerate(bottlenecked)]


def profile(index: int, loader_us: int, *, processes: int = 1) -> MinuteProfile:
    classes = [0, 0, 0, 0, 0, loader_us, 0, 0]
    return MinuteProfile(FIRST + index, processes, classes, TimeTable(["DataLoaderIter"], [loader_us]))


def test_given_minutes_of_both_kinds_when_compared_then_shares_are_of_the_processes_time() -> None:
    compared = compare_minutes(
        counts(120, 60, 59, 0),
        [profile(0, MINUTE), profile(1, MINUTE // 2), profile(2, MINUTE // 4, processes=2), profile(3, 0)],
    )

    assert compared is not None
    assert (compared.minutes_with_bottlenecks, compared.minutes_without) == (2, 2)
    assert [(row.name, row.with_bottlenecks_percent) for row in compared.phases] == [("DataLoaderIter", 75.0)]
    assert compared.phases[0].without_percent == pytest.approx(100 / 12)
    assert compared.classes[0].name == "general"


def test_given_minutes_of_one_kind_alone_when_compared_then_the_other_side_is_not_known() -> None:
    compared = compare_minutes(counts(120), [profile(0, MINUTE // 2)])

    assert compared is not None
    assert compared.phases == [ComparedPhase("DataLoaderIter", 50.0, None)]


def test_given_no_minute_that_both_know_when_compared_then_there_is_nothing_to_say() -> None:
    assert compare_minutes(counts(120), [profile(1, MINUTE)]) is None
    assert compare_minutes([], [profile(0, MINUTE)]) is None
    assert compare_minutes(counts(0, judged=0), [profile(0, MINUTE)]) is None


def streams(bottlenecked: list[int], rules: RulePlan) -> tuple[SystemStream, FrameworkStream]:
    tally = Tally(judged=240, bottlenecked=sum(bottlenecked), minutes=counts(*bottlenecked))
    stored = StoredRule(data=msgspec.msgpack.encode(BottleneckState(kept=tally)))
    system = SystemStream("algo-1", SystemState(stored_rules={"CPUBottleneck": stored}), rules)
    framework = FrameworkStream("algo-1", FrameworkState(), rules)
    framework.apply(
        read([event("DataLoaderIter", "next", 0.0, 54.0), event("DataLoaderIter", "next", 60.0, 3.0)]),
        START_US + 120 * SECOND,
    )
    return system, framework


DETAILS = BottleneckDetails(240, 120, 50.0, 240, 50.0, 120, [])


def verdict(status: Status, advice: str | None = "Add workers.") -> Verdict:
    return Verdict("CPUBottleneck", RuleResult(status, "so.", advice=advice, details=DETAILS), FiringHistory())


def correlated(bottlenecked: list[int], given: Verdict, rules: RulePlan) -> RuleResult:
    verdicts = {"CPUBottleneck": {"algo-1": given}}
    system, framework = streams(bottlenecked, plan())
    add_framework(verdicts, rules, {"algo-1": system}, {"algo-1": framework})
    return verdicts["CPUBottleneck"]["algo-1"].result


def test_given_a_fired_bottleneck_when_a_phase_grows_with_it_then_details_and_advice_say_so() -> None:
    result = correlated([120, 0], verdict(Status.FIRED), plan())

    assert result.plain_details["judged"] == 240
    assert result.plain_details["framework"]["minutes_with_bottlenecks"] == 1
    assert result.advice == (
        "Add workers. DataLoaderIter takes 90 % of the processes' time in minutes with bottlenecks and 5 % in those "
        "without."
    )


def test_given_a_rule_that_has_not_fired_when_correlated_then_it_gets_details_and_no_advice() -> None:
    result = correlated([120, 0], verdict(Status.OK, None), plan())

    assert result.advice is None
    assert "framework" in result.plain_details


@pytest.mark.parametrize("bottlenecked", [[0, 120], [120, 120]])
def test_given_no_phase_that_grows_when_fired_then_the_advice_is_the_rules_own(bottlenecked: list[int]) -> None:
    assert correlated(bottlenecked, verdict(Status.FIRED), plan()).advice == "Add workers."


def test_given_another_rule_alone_when_the_overview_does_not_run_then_nothing_is_added() -> None:
    alone = plan(ProfilerReport_rule_to_invoke="CPUBottleneck")
    assert "OverallFrameworkMetrics" not in alone.node_rules

    assert "framework" not in correlated([120, 0], verdict(Status.FIRED), alone).plain_details
