"""What the framework did in minutes with bottlenecks: from the ring buffers of both streams to the rule's details."""

from dataclasses import replace

import msgspec
import pytest

from tests.support.framework_traces import SECOND, START_US, event, read
from trainguard.core.finding import Fact
from trainguard.core.records import JobRecord, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.plan import RulePlan
from trainguard.engine.profiler.correlate import Correlation, compare_minutes
from trainguard.engine.profiler.framework_session import FrameworkState, FrameworkStream
from trainguard.engine.profiler.system_stream import SystemState, SystemStream
from trainguard.engine.streams.rule_runner import StoredRule
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.rules.bottlenecks.cpu_and_io import CPUBottleneck
from trainguard.rules.bottlenecks.state import BottleneckState, MinuteCount, Tally
from trainguard.rules.bottlenecks.text import BottleneckDetails, ComparedPhase
from trainguard.rules.framework_events import MinuteProfile, TimeTable
from trainguard.rules.registry import spec_of
from trainguard.rules.rule_result import RuleResult

FIRST = START_US // (60 * SECOND)
MINUTE = 60 * SECOND


def plan(**settings: str) -> RulePlan:
    return FAMILIES.plan(JobRecord("job", "arn", "b", "", rule_settings=settings))


def counts(*bottlenecked: int, judged: int = 120) -> list[MinuteCount]:
    return [MinuteCount(FIRST + index, judged, hits) for index, hits in enumerate(bottlenecked)]


def profile(index: int, loader_us: int, *, processes: int = 1) -> MinuteProfile:
    classes = [0, 0, 0, 0, 0, loader_us, 0, 0]
    return MinuteProfile(FIRST + index, processes, classes, TimeTable(["DataLoaderIter"], [loader_us]))


def test_shares_are_of_the_time_of_the_processes() -> None:
    compared = compare_minutes(
        counts(120, 60, 59, 0),
        [profile(0, MINUTE), profile(1, MINUTE // 2), profile(2, MINUTE // 4, processes=2), profile(3, 0)],
    )

    assert compared is not None
    assert (compared.minutes_with_bottlenecks, compared.minutes_without) == (2, 2)
    assert [(row.name, row.with_bottlenecks_percent) for row in compared.phases] == [("DataLoaderIter", 75.0)]
    assert compared.phases[0].without_percent == pytest.approx(100 / 12)
    assert compared.classes[0].name == "general"


def test_minutes_of_one_kind_leave_the_other_side_unknown() -> None:
    compared = compare_minutes(counts(120), [profile(0, MINUTE // 2)])

    assert compared is not None
    assert compared.phases == [ComparedPhase("DataLoaderIter", 50.0, None)]


def test_no_common_minute_compares_nothing() -> None:
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


def verdict(status: Status, advice: str | None = "Add workers.") -> RuleOutcome:
    text = spec_of("CPUBottleneck").text
    assert text is not None
    facts = (
        Fact(name="share_of_samples", value=0.6, node="algo-1", threshold=0.5),
        Fact(name="samples_found", value=6),
        Fact(name="samples", value=10),
        Fact(name="gpus_low", value=0.5),
        Fact(name="low_limit", value=10.0),
        Fact(name="core_limit", value=99.0, threshold=90.0),
        Fact(name="mean_core_utilization_found", value=30.0),
    )
    result = replace(RuleResult.of(text, status, "waits", facts, details=DETAILS), advice=advice)
    return RuleOutcome("CPUBottleneck", result, FiringHistory())


def correlated(bottlenecked: list[int], given: RuleOutcome, rules: RulePlan) -> RuleResult:
    verdicts = {"CPUBottleneck": {"algo-1": given}}
    system, framework = streams(bottlenecked, plan())
    correlation = Correlation(rules)
    correlation.note_system(system, [given])
    correlation.note_framework(framework)
    correlation.add_to(verdicts)
    return verdicts["CPUBottleneck"]["algo-1"].result


def test_phase_growing_with_a_bottleneck_is_named_in_advice() -> None:
    result = correlated([120, 0], verdict(Status.FIRED), plan())

    assert result.plain_details["judged"] == 240
    assert result.plain_details["framework"]["minutes_with_bottlenecks"] == 1
    assert (result.advice or "").endswith(
        "(algo-1). DataLoaderIter takes 90 % of the processes' time in minutes with bottlenecks and 5 % in those "
        "without."
    )
    assert (result.past_advice or "").endswith(
        "DataLoaderIter took 90 % of the processes' time in minutes with bottlenecks and 5 % in those without."
    )
    assert {fact.name for fact in result.facts} >= {"grown_phase", "phase_time_with", "phase_time_without"}


def test_rule_that_has_not_fired_gets_details_and_no_advice() -> None:
    result = correlated([120, 0], verdict(Status.OK, None), plan())

    assert result.advice is None
    assert "framework" in result.plain_details


@pytest.mark.parametrize("bottlenecked", [[0, 120], [120, 120]])
def test_advice_is_that_of_the_rule_if_no_phase_grows(bottlenecked: list[int]) -> None:
    assert correlated(bottlenecked, verdict(Status.FIRED), plan()).advice == "Add workers."


def test_single_invoked_rule_without_the_overview_adds_nothing() -> None:
    alone = plan(ProfilerReport_rule_to_invoke="CPUBottleneck")
    assert "OverallFrameworkMetrics" not in alone.node_rules

    assert "framework" not in correlated([120, 0], verdict(Status.FIRED), alone).plain_details


def phases(index: int, *, processes: int = 1, other_us: int = 0, **times_us: int) -> MinuteProfile:
    names = sorted(times_us)
    table = TimeTable(names, [times_us[name] for name in names], other_us)
    return MinuteProfile(FIRST + index, processes, [0] * 8, table)


@pytest.mark.parametrize(
    ("hit", "clean", "order"),
    [
        ({"a": MINUTE // 2, "b": MINUTE // 4}, {"a": MINUTE // 4, "c": MINUTE // 2}, ["c", "a", "b"]),
        ({"a": 3 * SECOND // 10, "b": 6 * SECOND // 10}, None, ["b", "a"]),
        (None, {"a": 3 * SECOND // 10, "b": 6 * SECOND // 10}, ["b", "a"]),
        ({"b": SECOND}, {"a": SECOND}, ["a", "b"]),
    ],
)
def test_phases_with_the_largest_difference_come_first(
    hit: dict[str, int] | None, clean: dict[str, int] | None, order: list[str]
) -> None:
    sides = [(120, hit), (0, clean)]
    known = [phases(index, **times) for index, (_, times) in enumerate(sides) if times is not None]
    compared = compare_minutes([MinuteCount(FIRST + index, 120, hits) for index, (hits, _) in enumerate(sides)], known)

    assert compared is not None
    assert [row.name for row in compared.phases] == order
    for row in compared.phases:
        for side, share in ((hit, row.with_bottlenecks_percent), (clean, row.without_percent)):
            assert share == (None if side is None else 100.0 * side.get(row.name, 0) / MINUTE)


def test_sixteen_phases_are_shown_and_the_rest_is_other() -> None:
    times = {f"phase_{number:02d}": (number + 1) * SECOND for number in range(18)}

    compared = compare_minutes(counts(120, 120), [phases(0, **times), phases(1, other_us=30 * SECOND)])

    assert compared is not None
    assert [row.name for row in compared.phases] == ["other", *sorted(times, reverse=True)[:15]]
    assert compared.phases[0].with_bottlenecks_percent == 25.0


def test_minutes_without_events_do_not_count() -> None:
    compared = compare_minutes(counts(120, 120), [phases(0, a=MINUTE), phases(1, processes=0)])

    assert compared is not None
    assert (compared.minutes_with_bottlenecks, compared.phases[0].with_bottlenecks_percent) == (1, 100.0)


@pytest.mark.parametrize(
    ("hit", "clean", "said"),
    [
        (
            {"a": 6 * SECOND},
            {"b": 0},
            "a takes 10 % of the processes' time in minutes with bottlenecks and 0 % in those",
        ),
        ({"a": 6 * SECOND - 1}, {"b": 0}, None),
        (
            {"a": 36 * SECOND},
            {"a": 30 * SECOND},
            "a takes 60 % of the processes' time in minutes with bottlenecks and 50",
        ),
        ({"a": 30 * SECOND}, {"a": 36 * SECOND}, None),
        ({"other": 30 * SECOND, "a": 12 * SECOND}, {"b": 0}, "a takes 20 %"),
        ({"other": 30 * SECOND}, {"b": 0}, None),
    ],
)
def test_phase_growing_by_ten_points_is_named_unless_other(
    monkeypatch: pytest.MonkeyPatch, hit: dict[str, int], clean: dict[str, int], said: str | None
) -> None:
    def minutes(*_: object) -> list[MinuteProfile]:
        return [
            phases(index, other_us=side.pop("other", 0), **side) for index, side in enumerate((dict(hit), dict(clean)))
        ]

    monkeypatch.setattr("trainguard.engine.profiler.correlate._framework_minutes", minutes)
    advice = correlated([120, 0], verdict(Status.FIRED, None), plan()).advice

    assert advice is None if said is None else f"(algo-1). {said}" in (advice or "")


@pytest.mark.parametrize(("status", "compared"), [(Status.FIRED, True), (Status.OK, False)])
def test_only_a_found_bottleneck_is_compared_without_details(status: Status, compared: bool) -> None:
    result = correlated([120, 0], verdict(status, None), replace(plan(), detailed=False))

    assert ("framework" in result.plain_details) is compared
    assert (result.advice is not None) is compared


def test_custom_rule_derived_from_a_bottleneck_is_unchanged() -> None:
    own = type("Stricter", (CPUBottleneck,), {"name": "CPUBottleneck"})()
    given = plan()
    rules = tuple(own if rule.name == "CPUBottleneck" else rule for rule in given.rules_of("profiler"))

    result = correlated([120, 0], verdict(Status.FIRED, None), replace(given, by_family={"profiler": rules}))

    assert result.advice is None


def test_details_of_another_kind_are_kept() -> None:
    given = verdict(Status.FIRED)
    given = replace(given, result=replace(given.result, details={"own": 1}))

    result = correlated([120, 0], given, plan())

    assert result.plain_details == {"own": 1}
    assert "DataLoaderIter takes 90 %" in (result.advice or "")


@pytest.mark.parametrize("failed", ["CPUBottleneck", "OverallFrameworkMetrics"])
def test_rule_that_failed_on_a_node_compares_nothing(failed: str) -> None:
    system, framework = streams([120, 0], plan())
    fault = {failed: StoredRule(fault="it failed")}
    if failed == "CPUBottleneck":
        system = SystemStream("algo-1", SystemState(stored_rules=fault), plan())
    else:
        framework = FrameworkStream("algo-1", FrameworkState(stored_rules=fault), plan())
    verdicts = {"CPUBottleneck": {"algo-1": verdict(Status.FIRED)}}

    correlation = Correlation(plan())
    correlation.note_system(system, [verdict(Status.FIRED)])
    correlation.note_framework(framework)
    correlation.add_to(verdicts)

    assert verdicts == {"CPUBottleneck": {"algo-1": verdict(Status.FIRED)}}


def test_columns_that_do_not_fit_are_not_compared() -> None:
    broken = MinuteProfile(FIRST, 1, [0] * 8, TimeTable(["a", "b"], [SECOND]))
    with pytest.raises(ValueError, match="zip"):
        compare_minutes(counts(120), [broken])
