"""Findings: the most severe first, causes before their symptoms, and a job with one fault names that fault first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.ledgers import HOUR_S, Part, ledger_of, node_time, one_node
from tests.support.verdicts import ALWAYS, fired, held, over, quiet
from trainguard.core.finding import Severity
from trainguard.engine.verdicts.findings import RankedFinding, finding_of
from trainguard.engine.verdicts.ranking import rank_findings
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.ledger.bucket import Bucket
from trainguard.ledger.job import Ledger
from trainguard.pricing.cost import PaidTime
from trainguard.rules.dataloader.text import DataloaderKind
from trainguard.rules.low_gpu_utilization.usage import Kind
from trainguard.rules.registry import RULE_NAMES, SPECS
from trainguard.rules.spec import LOW_GPUS, RuleSpec, Symptom

HOURS = 10.0
FREE = PaidTime(instance_type=None, started_at=0.0, watermark_s=HOURS * HOUR_S, nodes=1)
LOW = "LowGPUUtilization"
OPEN, IDLE, DATA = Bucket.UNEXPLAINED, Bucket.IDLE, Bucket.DATA


def lost(share: float, bucket: Bucket = OPEN, *, begin: float = 0.0, end: float = HOURS) -> Ledger:
    """Return the ledger of a job of ten hours on one GPU, of which a share of some hours was lost."""
    return one_node((begin, end, {bucket: share}), hours=HOURS)


def ranked(ledger: Ledger | None, *verdicts: RuleOutcome, paid_time: PaidTime = FREE) -> dict[str, RankedFinding]:
    """Return the findings by rule, in their order."""
    return {each.rule: each for each in rank_findings(verdicts, paid_time, ledger)}


def own(
    name: str,
    *explains: Symptom,
    symptom: Symptom | None = None,
    claims: Mapping[str, tuple[Bucket, ...]] | None = None,
) -> RuleSpec:
    stands = "it stands"
    return RuleSpec(
        name=name,
        looks_at="a fan",
        fires_when=stands,
        condition=stands,
        explains=explains,
        symptom=symptom,
        claims={"": (OPEN,)} if claims is None else claims,
    )


@dataclass(frozen=True)
class Fault:
    """A fault, what was lost by it, which rules fire, and the one that has to stand first."""

    first: str
    parts: Sequence[Part]
    verdicts: Sequence[RuleOutcome]


def all_day(bucket: Bucket, share: float) -> list[Part]:
    return [(0.0, HOURS, {bucket: share})]


ONE_FAULT: Mapping[str, Fault] = {
    "cpu_bottleneck": Fault(
        "CPUBottleneck", all_day(DATA, 0.6), [fired("CPUBottleneck", (0.2, None)), fired(LOW, ALWAYS)]
    ),
    "cpu_bottleneck_always": Fault(
        "CPUBottleneck",
        all_day(OPEN, 0.85),
        [
            fired("CPUBottleneck", ALWAYS),
            fired("BatchSize", ALWAYS, confidence=0.9),
            fired("StepOutlier", (4.0, 4.5)),
            fired(LOW, ALWAYS, kind=Kind.UNDER_USED),
        ],
    ),
    "io_bottleneck": Fault("IOBottleneck", all_day(OPEN, 0.6), [fired("IOBottleneck", ALWAYS), fired(LOW, ALWAYS)]),
    "imbalance": Fault(
        "LoadBalancing", all_day(Bucket.PEERS, 0.5), [fired("LoadBalancing", ALWAYS), fired(LOW, ALWAYS)]
    ),
    "small_batch": Fault(
        "BatchSize", all_day(OPEN, 0.7), [fired("BatchSize", ALWAYS, confidence=0.43), fired(LOW, ALWAYS)]
    ),
    "low_gpu": Fault(LOW, all_day(OPEN, 0.74), [fired(LOW, ALWAYS), fired("BatchSize", ALWAYS, confidence=0.2)]),
    "hang_after_a_bottleneck": Fault(
        "HungJob",
        [(0.0, 6.0, {DATA: 0.6}), (6.0, HOURS, {IDLE: 1.0})],
        [fired("HungJob", (6.0, None)), fired("IOBottleneck", (0.0, 6.0)), fired(LOW, ALWAYS, idle_node="idle")],
    ),
    "memory_leak": Fault("GPUMemoryIncrease", all_day(OPEN, 0.05), [fired("GPUMemoryIncrease", affected_share=0.6)]),
    "too_few_loaders": Fault("Dataloader", all_day(DATA, 0.7), [fired("Dataloader", ALWAYS), fired(LOW, ALWAYS)]),
}


@pytest.mark.parametrize("name", ONE_FAULT)
def test_given_one_fault_when_ranked_then_its_rule_is_first(name: str) -> None:
    fault = ONE_FAULT[name]
    named = {each.rule for each in fault.verdicts}
    silent = [quiet(rule) for rule in RULE_NAMES if rule not in named]
    for order in permutations(fault.verdicts):
        found = rank_findings([*silent, *order], FREE, one_node(*fault.parts, hours=HOURS))
        assert (found[0].rule, found[0].explained_by) == (fault.first, None)
        assert {each.rule for each in found} == named


@pytest.mark.parametrize(
    ("kind", "first"),
    [(Kind.GPU_TAKEN, LOW), (Kind.GPU_HOLDS_MEMORY, "LoadBalancing"), (Kind.UNDER_USED, "LoadBalancing")],
)
def test_a_taken_gpu_is_the_reason_for_an_imbalance(kind: Kind, first: str) -> None:
    """A GPU of any other kind is what an imbalance looks like."""
    found = ranked(lost(0.25, IDLE), fired("LoadBalancing", ALWAYS), fired(LOW, ALWAYS, kind=kind))

    assert next(iter(found)) == first
    assert [each.explained_by for each in found.values()] == [None, first]


def test_what_a_rule_has_measured_bounds_what_it_claims() -> None:
    """GPUs that are never full lose a little all the time, which slow steps do not explain."""
    found = ranked(lost(0.3), fired("StepOutlier", ALWAYS, wasted_share=0.2))

    assert found["StepOutlier"].wasted_share == pytest.approx(0.2)


@pytest.mark.parametrize("cause", ["CPUBottleneck", "IOBottleneck"])
def test_a_busy_host_is_the_reason_for_time_between_steps(cause: str) -> None:
    between = fired("Dataloader", ALWAYS, kind=DataloaderKind.BETWEEN_STEPS)
    waits = fired("Dataloader", ALWAYS, kind=DataloaderKind.WAITS)

    assert ranked(lost(0.5), fired(cause, ALWAYS), between)["Dataloader"].explained_by == cause
    assert ranked(lost(0.5), fired(cause, ALWAYS), waits)["Dataloader"].explained_by is None


def test_a_finding_has_the_kind_of_the_episode_that_cost_most() -> None:
    """Its words, kind and facts are of one episode."""
    idle, facts = held((1.0, 4.0), kind=Kind.STOPPED, facts=(), reason="It stopped.", advice="Start it."), ()
    later = held((6.0, 7.0), kind=Kind.UNDER_USED, reason="It was low.")
    verdict = replace(over(LOW, kind=Kind.UNDER_USED), merged=(*idle, *later), ended=True)
    found = ranked(one_node((1.0, 4.0, {IDLE: 1.0}), (6.0, 7.0, {OPEN: 0.5}), hours=HOURS), verdict)[LOW].finding

    assert (found.finding_kind, found.facts, found.advice) == (Kind.STOPPED, facts, "Start it.")
    assert found.reason.endswith("It stopped.")


def test_no_money_is_not_said() -> None:
    priced = PaidTime(instance_type="ml.p3.2xlarge", started_at=0.0, watermark_s=HOURS * HOUR_S, nodes=1)
    ledger = one_node((0.0, HOURS, {OPEN: 0.5}), hours=HOURS, hourly=3.825)
    found = ranked(ledger, fired("CPUBottleneck", ALWAYS), fired(LOW, ALWAYS), paid_time=priced)

    assert found["CPUBottleneck"].finding.cost is not None
    assert found[LOW].finding.cost is None


def test_a_hang_is_the_reason_for_a_taken_gpu() -> None:
    hung = fired("HungJob", ALWAYS)
    found = ranked(lost(1.0, IDLE), hung, fired(LOW, ALWAYS, kind=Kind.GPU_TAKEN))

    assert found[LOW].explained_by == "HungJob"


def test_no_second_is_claimed_twice_by_two_findings() -> None:
    found = ranked(lost(0.6), fired("CPUBottleneck", ALWAYS), fired("Dataloader", ALWAYS), fired(LOW, ALWAYS))

    assert all(each.alone is not None and each.alone.share == pytest.approx(0.6) for each in found.values())
    assert sum(each.loss.share for each in found.values() if each.loss is not None) == pytest.approx(0.6)
    assert {rule: round(each.loss.share, 3) for rule, each in found.items() if each.loss} == {
        "CPUBottleneck": 0.6,
        "Dataloader": 0.0,
        LOW: 0.0,
    }


def test_given_a_symptom_then_its_cause_claims_first() -> None:
    """Even where the symptom held longer, and so lost more."""
    found = ranked(lost(0.8), fired(LOW, ALWAYS), fired("IOBottleneck", (0.0, 8.0)))

    assert found[LOW].explained_by == "IOBottleneck"
    assert [each.loss.share for each in found.values() if each.loss] == pytest.approx([0.8, 0.0])


def test_given_a_symptom_then_it_is_no_graver_than_its_cause() -> None:
    found = ranked(lost(0.3), fired(LOW, ALWAYS), fired("IOBottleneck", ALWAYS))

    assert list(found) == ["IOBottleneck", LOW]
    assert found[LOW].score == found["IOBottleneck"].score == pytest.approx(30.0)
    alone = ranked(lost(0.3), fired(LOW, ALWAYS))[LOW]
    assert found[LOW].score <= alone.score


def test_given_a_risk_that_explains_a_loss_then_it_claims_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that claims nothing itself must not make a severe symptom look small."""
    monkeypatch.setitem(SPECS, "Fans", own("Fans", LOW_GPUS, claims={}))
    found = ranked(lost(0.6), fired(LOW, ALWAYS), fired("Fans", ALWAYS, score=5.0))

    assert [(rule, each.explained_by) for rule, each in found.items()] == [("Fans", None), (LOW, "Fans")]
    assert [each.score for each in found.values()] == pytest.approx([60.0, 60.0])
    assert found["Fans"].loss is not None
    assert found["Fans"].loss.share == pytest.approx(0.6)
    assert found["Fans"].alone is None


def test_no_symptom_in_a_chain_is_more_severe_than_its_causes() -> None:
    """BatchSize held for an hour alone, and what it explains for longer than that."""
    found = ranked(
        lost(0.9), fired(LOW, (3.8, 5.1)), fired("BatchSize", (4.0, 5.0), confidence=0.9), fired("IOBottleneck", ALWAYS)
    )

    assert found[LOW].score <= found["IOBottleneck"].score
    cause = found[LOW].explained_by
    assert cause is not None
    assert found[LOW].score <= found[cause].score
    assert list(found).index(cause) < list(found).index(LOW)


def test_first_cause_of_a_chain_comes_first() -> None:
    found = ranked(lost(0.9), fired(LOW, ALWAYS), fired("BatchSize", ALWAYS), fired("IOBottleneck", ALWAYS))

    assert (next(iter(found)), found["BatchSize"].explained_by) == ("IOBottleneck", "IOBottleneck")
    assert found[LOW].explained_by in {"IOBottleneck", "BatchSize"}
    assert [each.loss.share for each in found.values() if each.loss] == pytest.approx([0.9, 0.0, 0.0])


@pytest.mark.parametrize(("slow", "cause"), [(0.29, None), (0.31, "StepOutlier")])
def test_cause_that_claims_little_explains_little(slow: float, cause: str | None) -> None:
    """Checkpoints are StepOutlier's to claim, LowGPUUtilization claims the tail, too."""
    ledger = one_node((0.0, HOURS, {Bucket.TAIL: 0.6, Bucket.CHECKPOINT: slow}), hours=HOURS)
    found = ranked(ledger, fired(LOW, ALWAYS, kind=Kind.STOPPED), fired("StepOutlier", ALWAYS))

    assert found[LOW].explained_by == cause


def test_ended_cause_explains_its_own_time_only() -> None:
    found = ranked(lost(0.5), over("CPUBottleneck", (0.0, 2.0)), fired(LOW, ALWAYS))

    assert [(rule, each.ongoing, each.explained_by) for rule, each in found.items()] == [
        (LOW, True, None),
        ("CPUBottleneck", False, None),
    ]
    assert {rule: round(each.loss.share, 3) for rule, each in found.items() if each.loss} == {
        LOW: 0.4,
        "CPUBottleneck": 0.1,
    }


def test_given_an_idle_job_then_risks_count_half_once_it_ended() -> None:
    both = [fired("GPUMemoryIncrease", affected_share=1.0), fired("StepOutlier", ALWAYS)]
    ledger = lost(0.13, Bucket.CHECKPOINT)

    assert list(ranked(ledger, *both)) == ["GPUMemoryIncrease", "StepOutlier"]
    assert list(ranked(ledger, *(replace(each, ended=True) for each in both))) == ["StepOutlier", "GPUMemoryIncrease"]


@pytest.mark.parametrize("bucket", [Bucket.HANG, Bucket.BROKEN])
def test_ruinous_finding_is_critical_first_and_marked(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little was lost until now, and however much something else has lost."""
    monkeypatch.setitem(SPECS, "Ruins", own("Ruins", claims={"": (bucket,)}))
    ledger = lost(0.4)
    found = ranked(ledger, fired("IOBottleneck", ALWAYS), fired("Ruins", (9.9, None)))

    assert list(found) == ["Ruins", "IOBottleneck"]
    assert (found["Ruins"].score, found["Ruins"].finding.severity) == (100.0, Severity.CRITICAL)
    assert ledger.gpu_seconds(bucket) == pytest.approx(0.1 * HOUR_S)
    assert found["Ruins"].loss is not None
    assert found["Ruins"].loss.share == pytest.approx(0.01)
    assert found["IOBottleneck"].loss is not None
    assert found["IOBottleneck"].loss.share == pytest.approx(0.4 * 0.99)
    assert ledger.paid_gpu_seconds == pytest.approx(HOURS * HOUR_S)


def test_severity_of_an_ended_hang_follows_its_time() -> None:
    """A running job that went on after it has lost that time and no more."""
    found = ranked(lost(0.0), over("HungJob", (2.0, 3.0)))["HungJob"]

    assert found.score == pytest.approx(10.0)
    ended = ranked(lost(0.0), replace(over("HungJob", (2.0, 3.0)), ended=True))["HungJob"]
    assert ended.finding.severity is Severity.CRITICAL


def test_given_marks_then_ranking_again_changes_nothing() -> None:
    ledger, hung = lost(0.4), fired("HungJob", (9.0, None))
    first = ranked(ledger, hung)["HungJob"]

    assert ranked(ledger, hung)["HungJob"].loss == first.loss
    assert ledger.gpu_seconds(Bucket.HANG) == pytest.approx(HOUR_S)


def test_symptom_on_some_gpus_claims_only_their_time() -> None:
    ledger = ledger_of(node_time("algo-1", *all_day(IDLE, 0.5), hours=HOURS, gpus=4))
    verdict = replace(fired(LOW), merged=held(ALWAYS, nodes=("algo-1",), gpus=("gpu3",)))

    found = ranked(ledger, verdict)[LOW]
    assert found.loss is not None
    assert found.loss.share == pytest.approx(0.5 / 4)


def test_given_a_finding_on_one_node_then_its_share_is_of_all() -> None:
    nodes = [node_time(name, *all_day(OPEN, 0.5), hours=HOURS) for name in ("algo-1", "algo-2")]
    paid_time = PaidTime("ml.p3.2xlarge", 0.0, HOURS * HOUR_S, 2)
    verdict = replace(fired(LOW, nodes=(1, 2)), merged=held(ALWAYS, nodes=("algo-2",)))
    found = ranked(ledger_of(*nodes, hourly=3.825), verdict, paid_time=paid_time)[LOW]

    assert found.loss is not None
    assert (found.verdict.reach, found.affected_percent) == ((1, 2), 75.0)
    assert found.loss.share == pytest.approx(0.25)
    assert found.finding.cost == "about USD 19.12 of the USD 76.50 spent"
    assert [each.cost for each in found.episodes] == [pytest.approx(19.125)]
    assert [each.wasted_s for each in found.episodes] == [pytest.approx(5.0 * HOUR_S)]


def test_given_no_price_or_no_claim_then_there_is_no_money() -> None:
    assert finding_of(fired("GPUMemoryIncrease"), FREE, ledger=lost(0.5)).finding.cost is None
    assert finding_of(fired(LOW, ALWAYS), FREE, ledger=lost(0.5)).finding.cost is None
    without = finding_of(fired(LOW, ALWAYS), FREE)
    assert (without.loss, without.wasted_share, without.finding.cost) == (None, None, None)


def test_only_the_ledger_decides_what_counts_as_wasted() -> None:
    found = ranked(lost(0.2), fired(LOW, ALWAYS, wasted_share=0.9))[LOW]

    assert found.wasted_share == pytest.approx(0.2)
    assert found.score == pytest.approx(20.0)


@pytest.mark.parametrize("hours", [0.1, 0.5, 1.0, 2.0, 4.0, 9.0])
def test_rate_of_an_open_episode_counts_more_the_longer_it_lasts(hours: float) -> None:
    begin = HOURS - hours
    ledger = lost(0.8, begin=begin)
    running = ranked(ledger, fired(LOW, (begin, None)))[LOW]
    past = ranked(ledger, over(LOW, (begin, HOURS - 1e-6)))[LOW]
    share, rate = 0.8 * hours / HOURS, 0.8 * min(hours, 1.0)

    assert past.score == pytest.approx(100.0 * share, rel=1e-3)
    assert running.score == pytest.approx(100.0 * (share + 0.5 * hours / (hours + 1.0) * max(rate - share, 0.0)))


@pytest.mark.parametrize(("hours", "score"), [(0.0, 100.0), (1.0, 50.0), (3.0, 25.0), (9.0, 10.0)])
def test_given_a_risk_that_comes_soon_then_it_is_graver(hours: float, score: float) -> None:
    risk = fired("GPUMemoryIncrease", affected_share=0.01, time_left_s=HOUR_S * hours)

    assert finding_of(risk, FREE).score == pytest.approx(score)
    assert finding_of(replace(risk, history=over("GPUMemoryIncrease").history), FREE).score < 1.0


@given(st.floats(0.0, 1.0))
def test_given_a_risk_without_claims_then_it_is_medium_at_most(affected: float) -> None:
    found = finding_of(fired("GPUMemoryIncrease", affected_share=affected), FREE, ledger=lost(1.0))

    assert found.finding.severity in {Severity.LOW, Severity.MEDIUM}
