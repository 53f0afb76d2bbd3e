"""Findings: the gravest first, causes before their symptoms, and a job with one fault names that fault first."""

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.verdicts import fired, over, quiet
from trainguard.engine.verdicts.findings import OVER_WEIGHT, finding_of, rank_findings
from trainguard.engine.verdicts.severity import score_of, severity_of
from trainguard.engine.verdicts.verdict import Reach, Verdict
from trainguard.finding import Episode, Severity
from trainguard.pricing.cost import Account
from trainguard.rules.registry import RULE_NAMES, SPECS
from trainguard.rules.spec import RuleSpec
from trainguard.rules.symptoms import IDLE_NODE, LOW_GPUS, UNUSED_NODE, Symptom

FREE = Account(instance_type=None, started_at=None, watermark_s=None, nodes=1)
PRICED = Account(instance_type="ml.p3.2xlarge", started_at=0.0, watermark_s=7_200.0, nodes=4)
LOW = "LowGPUUtilization"

ONE_FAULT = {
    "cpu_bottleneck": [fired("CPUBottleneck", wasted=0.6), fired(LOW, wasted=0.65)],
    "cpu_bottleneck_always": [
        fired("CPUBottleneck", wasted=0.85),
        fired("BatchSize", wasted=0.9, confidence=0.9),
        fired("StepOutlier", wasted=0.12),
        fired(LOW, wasted=0.9),
    ],
    "io_bottleneck": [fired("IOBottleneck", wasted=0.6), fired(LOW, wasted=0.65)],
    "imbalance": [fired("LoadBalancing", wasted=0.53), fired(LOW, wasted=0.56)],
    "idle_gpu_of_several": [fired("LoadBalancing", wasted=0.25)],
    "idle_node": [fired(LOW, wasted=1.0)],
    "one_slow_node_of_four": [
        fired("LoadBalancing", wasted=0.125, nodes=(4, 4)),
        fired(LOW, wasted=0.55, nodes=(1, 4)),
        fired("BatchSize", wasted=0.55, nodes=(1, 4), confidence=0.2),
    ],
    "one_dead_node_of_four": [
        fired(LOW, wasted=1.0, nodes=(1, 4), idle_node="never used"),
        fired("LoadBalancing", wasted=0.25, nodes=(4, 4)),
    ],
    "one_starved_node_holds_up_three": [
        fired("CPUBottleneck", wasted=0.6, nodes=(1, 4)),
        fired(LOW, wasted=0.65, nodes=(4, 4)),
    ],
    "start_up_without_gpus": [
        fired("MaxInitializationTime", wasted=0.08),
        fired(LOW, wasted=0.4, idle_node="never used"),
    ],
    "hang_after_a_bottleneck": [
        fired(LOW, wasted=0.5, idle_node="idle"),
        fired("IOBottleneck", wasted=0.4),
    ],
    "small_batch": [fired("BatchSize", wasted=0.7, confidence=0.43), fired(LOW, wasted=0.7)],
    "low_gpu": [fired(LOW, wasted=0.74), fired("BatchSize", wasted=0.75, confidence=0.2)],
    "slow_steps": [fired("StepOutlier", wasted=0.15, affected_share=0.17)],
    "late_first_step": [fired("MaxInitializationTime", wasted=0.8), fired(LOW, wasted=1.0)],
    "memory_leak": [fired("GPUMemoryIncrease", affected_share=0.6)],
    "too_few_loaders": [fired("Dataloader", affected_share=1.0), fired(LOW, wasted=0.7)],
}
NAMED = {
    "cpu_bottleneck": "CPUBottleneck",
    "cpu_bottleneck_always": "CPUBottleneck",
    "io_bottleneck": "IOBottleneck",
    "imbalance": "LoadBalancing",
    "idle_gpu_of_several": "LoadBalancing",
    "idle_node": LOW,
    "one_slow_node_of_four": "LoadBalancing",
    "one_dead_node_of_four": LOW,
    "one_starved_node_holds_up_three": "CPUBottleneck",
    "start_up_without_gpus": "MaxInitializationTime",
    "hang_after_a_bottleneck": LOW,
    "small_batch": "BatchSize",
    "low_gpu": LOW,
    "slow_steps": "StepOutlier",
    "late_first_step": "MaxInitializationTime",
    "memory_leak": "GPUMemoryIncrease",
    "too_few_loaders": "Dataloader",
}


@pytest.mark.parametrize("fault", ONE_FAULT)
def test_given_a_job_with_one_fault_when_ranked_then_its_rule_is_named_first_in_whatever_order(fault: str) -> None:
    silent = [quiet(rule) for rule in RULE_NAMES if rule not in {each.rule for each in ONE_FAULT[fault]}]
    for order in permutations(ONE_FAULT[fault]):
        found = rank_findings([*silent, *order], FREE)
        assert found[0].rule == NAMED[fault]
        assert {each.rule for each in found} == {each.rule for each in ONE_FAULT[fault]}
        assert found[0].explained_by is None


def test_given_a_symptom_when_ranked_then_its_cause_takes_over_its_score_and_the_symptom_says_who_explains_it() -> None:
    cause, symptom = rank_findings([fired(LOW, wasted=0.6), fired("CPUBottleneck", wasted=0.3)], FREE)

    assert (cause.rule, cause.score, cause.finding.severity) == ("CPUBottleneck", 60.0, Severity.CRITICAL)
    assert (symptom.rule, symptom.score, symptom.explained_by) == (LOW, 60.0, "CPUBottleneck")


def test_given_several_causes_when_ranked_then_only_the_strongest_explains() -> None:
    found = rank_findings(
        [fired(LOW, wasted=0.7), fired("Dataloader", affected_share=1.0), fired("IOBottleneck", wasted=0.5)], FREE
    )

    assert [each.rule for each in found] == ["IOBottleneck", LOW, "Dataloader"]
    assert [each.explained_by for each in found] == [None, "IOBottleneck", None]
    assert found[2].score == 24.0


def test_given_a_chain_of_causes_when_ranked_then_the_first_cause_comes_first() -> None:
    chain = [fired(LOW, wasted=0.9), fired("BatchSize", wasted=0.8), fired("IOBottleneck", wasted=0.5)]
    found = rank_findings(chain, FREE)

    assert [each.rule for each in found] == ["IOBottleneck", "BatchSize", LOW]
    assert [each.explained_by for each in found] == [None, "IOBottleneck", "BatchSize"]
    assert {each.score for each in found} == {90.0}


@pytest.mark.parametrize(("wasted", "first"), [(0.19, LOW), (0.21, "StepOutlier")])
def test_given_a_rule_that_costs_little_when_ranked_then_it_explains_nothing_that_costs_much(
    wasted: float, first: str
) -> None:
    found = rank_findings([fired(LOW, wasted=0.6), fired("StepOutlier", wasted=wasted)], FREE)

    assert found[0].rule == first


@pytest.mark.parametrize(
    ("lost", "cause", "explained"),
    [
        ((0.75, 1), (0.25, 1), True),
        ((0.75, 1), (0.2499, 1), False),
        ((0.75, 1), (0.0625, 4), True),
        ((0.75, 1), (0.0624, 4), False),
        ((0.75, 4), (0.25, 1), True),
        ((0.75, 4), (0.2499, 1), False),
        ((0.75, 1), (0.0, 4), False),
    ],
)
def test_given_a_loss_when_a_cause_is_weighed_then_it_lost_a_third_of_that_on_the_worst_node_or_over_all(
    lost: tuple[float, int], cause: tuple[float, int], explained: bool
) -> None:
    verdicts = [
        fired(rule, wasted=share, nodes=(nodes, 4)) for rule, (share, nodes) in ((LOW, lost), ("StepOutlier", cause))
    ]
    found = {each.rule: each for each in rank_findings(verdicts, FREE)}

    assert found[LOW].explained_by == ("StepOutlier" if explained else None)
    assert found[LOW].explained_share == (1.0 if explained else 0.0)


def test_given_a_cause_that_is_over_when_its_symptom_goes_on_then_it_explains_nothing_and_comes_last() -> None:
    found = rank_findings([over("CPUBottleneck", wasted=0.9), fired(LOW, wasted=0.3)], FREE)

    assert [(each.rule, each.ongoing, each.explained_by) for each in found] == [
        (LOW, True, None),
        ("CPUBottleneck", False, None),
    ]


@pytest.mark.parametrize(("wasted", "first"), [(0.11, "GPUMemoryIncrease"), (0.13, "StepOutlier")])
def test_given_a_risk_that_did_not_come_true_when_the_job_has_ended_then_it_counts_half(
    wasted: float, first: str
) -> None:
    both = [fired("GPUMemoryIncrease", affected_share=1.0), fired("StepOutlier", wasted=wasted)]
    assert rank_findings(both, FREE)[0].rule == "GPUMemoryIncrease"
    assert rank_findings([replace(each, ended=True) for each in both], FREE)[0].rule == first


def test_given_a_risk_that_is_the_reason_for_a_loss_when_the_job_has_ended_then_it_comes_before_its_symptom() -> None:
    both = [fired("Dataloader", affected_share=1.0), fired(LOW, wasted=0.7)]
    cause, symptom = rank_findings([replace(each, ended=True) for each in both], FREE)
    assert (cause.rule, symptom.rule, symptom.explained_by) == ("Dataloader", LOW, "Dataloader")


def test_given_rules_that_explain_each_other_when_ranked_then_no_one_explains_itself() -> None:
    shown = {spec.symptom for spec in SPECS.values()} | {UNUSED_NODE, IDLE_NODE}
    assert {symptom for spec in SPECS.values() for symptom in spec.explains} <= shown

    def reached(rule: str) -> set[str]:
        causes = {other for other, spec in SPECS.items() if SPECS[rule].symptom in spec.explains}
        return causes.union(*(reached(cause) for cause in causes))

    assert all(rule not in reached(rule) for rule in SPECS)
    assert reached(LOW) >= {"CPUBottleneck", "BatchSize", "StepOutlier"}


def own(name: str, *explains: Symptom, symptom: Symptom | None = None) -> RuleSpec:
    stands = "it stands"
    return RuleSpec(
        name=name, looks_at="a fan", fires_when=stands, condition=stands, explains=explains, symptom=symptom
    )


def test_given_a_rule_of_ones_own_that_names_a_reason_when_ranked_then_the_symptoms_rule_need_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(SPECS, "Fans", own("Fans", LOW_GPUS))
    found = rank_findings([fired(LOW, wasted=0.6), fired("Fans", wasted=0.5), fired("IOBottleneck", wasted=0.3)], FREE)
    assert [(each.rule, each.explained_by) for each in found] == [
        ("Fans", None),
        (LOW, "Fans"),
        ("IOBottleneck", None),
    ]


def test_given_rules_that_explain_one_another_in_a_circle_when_ranked_then_one_of_them_stands_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hot, slow = Symptom("it is hot"), Symptom("it is slow")
    monkeypatch.setitem(SPECS, "Fans", own("Fans", slow, symptom=hot))
    monkeypatch.setitem(SPECS, "Clocks", own("Clocks", hot, symptom=slow))
    monkeypatch.setitem(SPECS, "Itself", own("Itself", LOW_GPUS, symptom=LOW_GPUS))
    found = rank_findings([fired("Fans", wasted=0.6), fired("Clocks", wasted=0.5), fired("Itself", wasted=0.4)], FREE)
    assert {each.rule: each.explained_by for each in found} == {"Fans": "Clocks", "Clocks": None, "Itself": None}


shares = st.none() | st.floats(0.0, 1.0)


@st.composite
def verdicts(draw: st.DrawFn) -> Verdict:
    rule = draw(st.sampled_from(RULE_NAMES))
    wasted = draw(shares)
    if draw(st.booleans()):
        return over(rule, wasted=wasted)
    return fired(rule, wasted=wasted, affected_share=draw(shares), confidence=draw(shares))


@given(st.lists(verdicts(), unique_by=lambda each: each.rule))
def test_given_any_verdicts_when_ranked_then_scores_fall_and_every_cause_stands_before_its_symptom(
    given_verdicts: list[Verdict],
) -> None:
    found = rank_findings(given_verdicts, PRICED)

    assert {each.rule for each in found} == {each.rule for each in given_verdicts}
    weighed = [each.score if each.ongoing else OVER_WEIGHT * each.score for each in found]
    assert weighed == sorted(weighed, reverse=True)
    place = {each.rule: number for number, each in enumerate(found)}
    for each in found:
        assert 0.0 <= each.score <= 100.0
        assert each.finding.severity is severity_of(each.score)
        if each.explained_by is not None and found[place[each.explained_by]].ongoing is each.ongoing:
            assert place[each.explained_by] < place[each.rule]
    unordered = rank_findings(given_verdicts[::-1], PRICED)
    assert {each.rule: (each.score, each.explained_by is None) for each in unordered} == {
        each.rule: (each.score, each.explained_by is None) for each in found
    }


@pytest.mark.parametrize(
    ("score", "level"),
    [
        (0.0, Severity.LOW),
        (9.9, Severity.LOW),
        (10.0, Severity.MEDIUM),
        (24.9, Severity.MEDIUM),
        (25.0, Severity.HIGH),
        (49.9, Severity.HIGH),
        (50.0, Severity.CRITICAL),
        (100.0, Severity.CRITICAL),
    ],
)
def test_given_a_score_when_levelled_then_each_level_begins_at_its_own(score: float, level: Severity) -> None:
    assert severity_of(score) is level


@pytest.mark.parametrize(
    ("wasted", "affected", "reach", "score"),
    [
        (0.4, 1.0, Reach(1, 1, None), 40.0),
        (None, 0.6, Reach(1, 1, None), 14.4),
        (None, None, Reach(1, 1, None), 24.0),
        (0.4, 1.0, Reach(1, 4, None), 17.5),
        (0.4, 1.0, Reach(4, 4, None), 40.0),
        (1.7, 1.0, Reach(1, 1, None), 100.0),
        (-0.1, 1.0, Reach(1, 1, None), 0.0),
    ],
)
def test_given_what_a_rule_says_when_scored_then_it_is_the_wasted_share_or_a_risk_weighed_by_the_nodes(
    wasted: float | None, affected: float | None, reach: Reach, score: float
) -> None:
    assert score_of(wasted_share=wasted, affected_share=affected, reach=reach) == pytest.approx(score)


def test_given_a_priced_job_when_a_finding_wastes_half_of_two_nodes_then_it_costs_one_node_s_price() -> None:
    finding = finding_of(fired(LOW, wasted=0.5, nodes=(2, 4)), PRICED)

    assert finding.nodes == (2, 4)
    assert finding.affected_percent == 75.0
    assert str(finding.finding.cost) == "about USD 7.65 of the USD 30.60 spent"


def test_given_a_rule_that_cannot_say_what_it_wastes_when_priced_then_there_is_no_money() -> None:
    assert finding_of(fired("Dataloader"), PRICED).finding.cost is None
    assert finding_of(fired(LOW, wasted=0.5), FREE).finding.cost is None


def test_given_episodes_that_lost_more_than_the_rule_says_of_now_when_found_then_they_are_what_it_cost() -> None:
    episodes = (Episode(600.0, 2_400.0, nodes=("algo-1",), wasted_s=1_800.0), Episode(6_000.0, 7_200.0, wasted_s=0.0))
    verdict = replace(fired(LOW, wasted=0.05, nodes=(1, 4)), merged=episodes)
    finding = finding_of(verdict, PRICED)

    assert finding.wasted_share == pytest.approx(0.25)
    assert finding.wasted_nodes == pytest.approx(0.25)
    assert [each.cost for each in finding.episodes] == [pytest.approx(1.9125), 0.0]
    assert finding.loss is not None
    assert finding.loss.lost == pytest.approx(1.9125)


def test_given_an_episode_that_goes_on_when_scored_then_what_is_being_lost_counts_more_the_longer_it_lasts() -> None:
    def score(hours: float, *, ended: bool = False) -> float:
        at = 24.0 * 3_600.0
        start = at - 3_600.0 * hours
        episode = Episode(start, at if ended else None, nodes=("algo-1",), wasted_s=3_600.0 * hours)
        verdict = replace(fired(LOW, wasted=hours / 24.0), merged=(episode,))
        return finding_of(verdict, replace(PRICED, watermark_s=at, nodes=1)).score

    assert score(2.0, ended=True) == pytest.approx(100.0 * 2.0 / 24.0)
    assert score(2.0) == pytest.approx(100.0 * (2.0 / 24.0 + 22.0 / 24.0 / 3.0))
    scores = [score(hours) for hours in (0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0)]
    assert scores == sorted(scores)
    assert scores[-1] == pytest.approx(100.0)


@pytest.mark.parametrize(("hours", "score"), [(0.0, 100.0), (1.0, 50.0), (3.0, 25.0), (9.0, 10.0)])
def test_given_a_risk_that_comes_true_soon_when_scored_then_it_is_as_grave_as_the_time_is_short(
    hours: float, score: float
) -> None:
    risk = fired("GPUMemoryIncrease", affected_share=0.01, time_left_s=3_600.0 * hours)

    assert finding_of(risk, PRICED).score == pytest.approx(score)
    assert finding_of(replace(risk, history=over("GPUMemoryIncrease").history), PRICED).score < 1.0
