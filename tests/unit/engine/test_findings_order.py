"""The order of findings: causes first, whatever the rules say about each other; and the levels of their scores."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledgers import one_node
from tests.support.verdicts import ALWAYS, fired, over
from tests.unit.engine.test_findings import DATA, FREE, HOURS, IDLE, LOW, OPEN, lost, own, ranked
from trainguard.core.finding import Severity
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.verdicts.findings import score_of, severity_of
from trainguard.engine.verdicts.ranking import OVER_WEIGHT, rank_findings
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.rules.registry import RULE_NAMES, SPECS, spec_of
from trainguard.rules.spec import LOW_GPUS, UNUSED_NODE, Symptom


def test_no_rule_in_an_explanation_cycle_explains_itself() -> None:
    rules = FAMILIES.plan(JobRecord("job", "arn", "b", "")).rules
    looks = {look for rule in rules for look in spec_of(rule).looks.values()}
    shown = {spec_of(rule).symptom for rule in rules} | looks | {UNUSED_NODE}
    assert {symptom for spec in SPECS.values() for symptom in spec.explains} <= shown

    def reached(rule: str) -> set[str]:
        causes = {other for other, spec in SPECS.items() if SPECS[rule].symptom in spec.explains}
        return causes.union(*(reached(cause) for cause in causes))

    assert all(rule not in reached(rule) for rule in SPECS)
    assert reached(LOW) >= {"CPUBottleneck", "BatchSize", "StepOutlier"}


def test_custom_rule_explains_a_symptom_that_does_not_know_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SPECS, "Fans", own("Fans", LOW_GPUS))
    found = ranked(lost(0.6), fired(LOW, ALWAYS), fired("Fans", ALWAYS))

    assert [(rule, each.explained_by) for rule, each in found.items()] == [("Fans", None), (LOW, "Fans")]


def test_given_a_circle_of_reasons_then_one_stands_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    hot, slow = Symptom("it is hot"), Symptom("it is slow")
    monkeypatch.setitem(SPECS, "Fans", own("Fans", slow, symptom=hot))
    monkeypatch.setitem(SPECS, "Clocks", own("Clocks", hot, symptom=slow))
    monkeypatch.setitem(SPECS, "Itself", own("Itself", LOW_GPUS, symptom=LOW_GPUS))
    found = ranked(lost(0.6), fired("Fans", ALWAYS), fired("Clocks", ALWAYS), fired("Itself", ALWAYS))

    assert {rule: each.explained_by for rule, each in found.items()} == {
        "Fans": "Clocks",
        "Clocks": None,
        "Itself": None,
    }


shares = st.none() | st.floats(0.0, 1.0)
some_hours = st.tuples(st.floats(0.0, 9.0), st.none() | st.floats(0.0, 5.0)).map(
    lambda of: (of[0], None if of[1] is None else of[0] + of[1])
)


@st.composite
def verdicts(draw: st.DrawFn) -> RuleOutcome:
    rule = draw(st.sampled_from(RULE_NAMES))
    if draw(st.booleans()):
        return over(rule, draw(some_hours))
    return fired(rule, draw(some_hours), affected_share=draw(shares), confidence=draw(shares))


@given(st.lists(verdicts(), unique_by=lambda each: each.rule), st.sampled_from([OPEN, IDLE, DATA, Bucket.PEERS]))
def test_given_any_verdicts_then_order_claims_and_levels_hold(said: list[RuleOutcome], bucket: Bucket) -> None:
    ledger = one_node((1.0, 7.0, {bucket: 0.6}), (3.0, 9.0, {Bucket.CHECKPOINT: 0.3}), hours=HOURS)
    found = rank_findings(said, FREE, ledger)

    assert {each.rule for each in found} == {each.rule for each in said}
    weighed = [each.score if each.ongoing else OVER_WEIGHT * each.score for each in found]
    assert weighed == sorted(weighed, reverse=True)
    place = {each.rule: number for number, each in enumerate(found)}
    for each in found:
        assert 0.0 <= each.score <= 100.0
        assert each.finding.severity is severity_of(each.score)
        if each.explained_by is not None and found[place[each.explained_by]].ongoing is each.ongoing:
            assert place[each.explained_by] < place[each.rule]
        if each.loss is not None and each.alone is not None and each.explained_by is not None:
            assert each.loss.share <= each.alone.share + 1e-9
    lost_share = 1.0 - ledger.gpu_seconds(Bucket.COMPUTE) / ledger.paid_gpu_seconds
    assert sum(each.loss.share for each in found if each.loss is not None) <= lost_share + 1e-9


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
def test_each_level_begins_at_its_own_score(score: float, level: Severity) -> None:
    assert severity_of(score) is level


@pytest.mark.parametrize(
    ("lost_share", "affected", "score"),
    [(0.4, 1.0, 40.0), (None, 0.6, 14.4), (None, None, 24.0), (1.7, 1.0, 100.0), (-0.1, 1.0, 0.0)],
)
def test_loss_or_risk_is_scored_in_percent(lost_share: float | None, affected: float | None, score: float) -> None:
    assert score_of(lost_share=lost_share, affected_share=affected) == pytest.approx(score)
