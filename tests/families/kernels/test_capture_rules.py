"""Rules over captures: what they say about a verdict, and that they are the rules that see traces."""

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from trainguard.core.errors import TelemetryFormatError
from trainguard.core.finding import MOST_FACTS, Fact, Severity
from trainguard.core.records import Status
from trainguard.engine.verdicts.findings import severity_of
from trainguard.kernels.rules.registry import CAUSES_FIRST, KERNEL_RULES, MEMORY_RULES
from trainguard.kernels.rules.rule import KernelRule, RankRule, score_of
from trainguard.kernels.verdict import MOST_BYTES, CaptureVerdict, Proof, RuleVerdict, decode_verdict, encode_verdict
from trainguard.rules.family_rules import KERNELS
from trainguard.rules.rule_result import FactSheet

FOUND = RuleVerdict(
    rule="kernels/GpuGap",
    severity=Severity.MEDIUM,
    kind="gpu_gap",
    facts=[
        Fact(name="longest_gap", value=600.0, unit="ms", threshold=500.0),
        Fact(name="gaps", value=2),
    ],
    value=600.0,
    threshold=500.0,
    gain_ns_per_step=2_000_000,
    gain_share=0.2,
    sure=2,
    unsure=0,
    ranks=["rank 1", "rank 3"],
    evidence=[Proof(what="gap", duration_ns=600_000_000)],
)
VERDICT = CaptureVerdict(
    capture="20261121T081000Z-0123abcd",
    version="v",
    run="run",
    folder="f/",
    at=1_795_248_600.0,
    traces=4,
    judged=4,
    unread=0,
    unread_why={},
    world_size=4,
    steps=5,
    gpus=["NVIDIA A100"],
    busy_share=0.6,
    step_ns=10_000_000,
    rules=[FOUND],
    notes=[],
)


def _shares(*names: str) -> list[Fact]:
    return [Fact(name=name, value=0.25, unit="share", threshold=0.5) for name in names]


def _counts(*names: str) -> list[Fact]:
    return [Fact(name=name, value=3, threshold=1.1) for name in names]


FACTS_OF = {
    "gpu_busy_low": _shares("busy_share", "least_busy_share") + _counts("gpus"),
    "gpu_gap": _counts("longest_gap", "gaps"),
    "loader_bound": _shares("loader_share"),
    "launch_bound": _counts("launch_delay", "queued_launches") + _shares("host_share"),
    "late_launches": _shares("short_gaps_share") + _counts("gaps_before_launches"),
    "small_kernel_storm": _shares("short_share") + _counts("kernels_per_step", "gpus"),
    "sync_stall": _shares("waiting_share", "idle_share") + _counts("after_wait"),
    "exposed_communication": _shares("exposed_share", "overlap_share"),
    "memcpy_bound": _shares("copy_share"),
    "pageable_copies": _shares("copy_share", "pageable_copy_share"),
    "pageable_copy": _shares("pageable_share"),
    "data_parallel": _counts("gpus") + _shares("least_busy_share", "most_busy_share"),
    "without_nccl": _counts("library") + _shares("collective_share", "idle_share"),
    "tensor_cores_idle": _shares("tensor_core_share"),
    "low_precision_unused": _shares("fp32_share"),
    "double_precision": _shares("fp64_share"),
    "products_in_full_precision": _shares("full_precision_share"),
    "sm_underfilled": _shares("underfilled_share"),
    "slow_operators_math_attention": _shares("math_share") + _counts("operator"),
    "slow_operators_layout": _shares("layout_share") + _counts("operator"),
    "slow_operators_unfused": _shares("saved_share") + _counts("operator", "shapes"),
    "slow_operators_starved": (
        _shares("starved_share", "compute_share") + _counts("operator", "shapes", "experts", "rows")
    ),
    "slow_operators_unused": _shares("experts_share") + _counts("operator", "shapes", "experts", "most_used"),
    **{
        f"slow_operators_{reason}": _shares("saved_share", "reached_share") + _counts("operator", "shapes", *numbers)
        for reason, numbers in {
            "misaligned": ("odd_size", "faster_shape"),
            "narrow": ("narrowest",),
            "few_tiles": ("tiles", "tile_side", "multiprocessors"),
            "tiles": ("tile_side", "narrowest", "faster_shape"),
            "waves": ("tiles", "multiprocessors", "faster_shape"),
            "few_rows": ("experts", "rows"),
            "uneven": ("groups", "most_rows", "mean_rows"),
            "single": ("slow_calls", "calls"),
            "strided": ("stride",),
            "heads": ("head_width",),
            "short": ("sequence",),
            "attention": ("sequence",),
            "depthwise": ("channels",),
            "channels": ("channels", "channels_out"),
            "small_images": ("positions",),
            **dict.fromkeys(("convolution", "memory", "unknown"), ()),
        }.items()
    },
    "slow_steps": _counts("slowest_step", "median_step", "slow_steps", "steps"),
    "gpu_memory_full": _shares("reserved_share"),
    "gpu_memory_ran_out": _counts("requested", "allocated", "reserved", "device_free", "largest_kind", "place"),
    "fragmented_memory": _shares("unused_share", "reserved_share"),
    "failed_in_parts": _counts("unused", "requested"),
    "gpu_memory_grows": _counts("growth_per_step", "steps", "steps_left", "place"),
    "gpu_memory_held": _shares("held_share") + _counts("held", "held_kind", "place"),
    "queue_full": _shares("full_queue_share") + _counts("queued_launches"),
    "trace_quality": _counts("faults", "fault"),
    "late_rank": _shares("lateness_share")
    + _counts("late_rank", "collective", "last_steps", "steps", "ranks_compared", "compute_ratio", "exchange_ratio"),
    "slow_rank": _counts("compute_ratio", "slow_rank", "like_ranks"),
}
RULE = next(rule for rule in KERNEL_RULES if rule.name == FOUND.rule)
SUMMARY, RECOMMENDATION = RULE.words(FOUND.kind, FOUND.facts)


def _facts(verdict: CaptureVerdict) -> dict[str, object]:
    return {fact.name: fact.value for fact in RULE.judge(verdict).facts}


def test_rules_have_the_names_that_settings_know() -> None:
    assert tuple(rule.name for rule in KERNEL_RULES) == KERNELS.names
    assert [rule.name.removeprefix("kernels/Gpu") for rule in MEMORY_RULES] == [
        *("MemoryRanOut", "MemoryFragmented", "MemoryGrows", "MemoryHeld")
    ]
    over_ranks = {rule.name for rule in CAUSES_FIRST}
    assert over_ranks | {"kernels/LateRank", "kernels/SlowRank"} == set(KERNELS.names)
    assert len(CAUSES_FIRST) == len(over_ranks) == len(KERNEL_RULES) - 2


def test_no_two_rules_share_a_kind_of_finding() -> None:
    kinds = [saying.kind for rule in KERNEL_RULES for saying in rule.says]
    assert sorted(kinds) == sorted(FACTS_OF)


def test_rules_that_take_time_stand_before_those_that_do_not() -> None:
    base = RankRule
    taking = [
        bool(rule.takes) or type(rule).stretches is not base.stretches or type(rule).beyond is not base.beyond
        for rule in CAUSES_FIRST
    ]
    assert taking == sorted(taking, reverse=True)
    assert sum(taking) == 15


def test_without_events_of_memory_there_is_no_all_clear() -> None:
    found = {rule.name: rule.judge(VERDICT).status for rule in MEMORY_RULES}
    assert found == dict.fromkeys(found, Status.WARMING_UP)
    known = {rule.name: rule.judge(replace(VERDICT, memory=1)).status for rule in MEMORY_RULES}
    # A failed allocation is in no trace.
    assert known == dict.fromkeys(known, Status.OK) | {"kernels/GpuMemoryRanOut": Status.WARMING_UP}


def test_finding_on_some_ranks_fires_with_place_and_size() -> None:
    result = RULE.judge(VERDICT)
    assert result.status is Status.FIRED
    assert result.reason == f"On 2 of 4 ranks (rank 1, rank 3), at worst: {SUMMARY}"
    assert result.advice == f"{RECOMMENDATION} It explains 20.0 % of the time, 2.000 ms a step."
    assert (result.measured, result.threshold, result.worst) == (600.0, 500.0, "rank 1")
    assert result.wasted_share is None
    assert RULE.clear_after_s(RULE.parameters_type(), 0.5) == 0.0


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (None, Status.WAITING_FOR_DATA),
        (replace(VERDICT, rules=[]), Status.OK),
        (replace(VERDICT, rules=[], judged=0, steps=2), Status.WARMING_UP),
        (replace(VERDICT, rules=[replace(FOUND, sure=0, unsure=2)]), Status.WARMING_UP),
        (replace(VERDICT, rules=[replace(FOUND, sure=1, unsure=3)]), Status.FIRED),
    ],
    ids=["no capture", "not there", "not judged", "low confidence", "sure on one rank"],
)
def test_only_certain_findings_of_a_verdict_fire(verdict: CaptureVerdict | None, status: Status) -> None:
    assert RULE.judge(verdict).status is status


@pytest.mark.parametrize("name", ["kernels/QueueFull", "kernels/TraceQuality"])
def test_informing_rule_does_not_fire_on_its_condition(name: str) -> None:
    rule = next(each for each in KERNEL_RULES if each.name == name)
    kind = rule.says[0].kind
    result = rule.judge(replace(VERDICT, rules=[replace(FOUND, rule=name, kind=kind, facts=FACTS_OF[kind])]))
    assert (result.status, result.reason) == (Status.OK, rule.words(kind, FACTS_OF[kind])[0])


@pytest.mark.parametrize("severity", list(Severity))
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0, 7.0])
def test_score_follows_severity_whatever_the_gain(severity: Severity, share: float) -> None:
    assert severity_of(score_of(replace(FOUND, severity=severity, gain_share=share))) is severity


def test_rows_have_framework_traces_and_possible_gain() -> None:
    made_with = replace(VERDICT, framework="jax")
    facts = _facts(made_with)
    assert facts.items() >= {"framework": "jax", "traces": 4, "gain_share": 0.2, "gain_per_step": 2_000_000}.items()
    assert facts.items() >= {"longest_gap": 600.0, "gaps": 2, "ranks_affected": 2, "ranks_read": 4}.items()
    unsure = _facts(replace(made_with, rules=[replace(FOUND, sure=0, unsure=2)]))
    silent = _facts(replace(made_with, rules=[]))
    assert silent == {"framework": "jax", "traces": 4, "ranks_judged": 4}
    assert (unsure["framework"], unsure["traces"], "gain_share" in unsure) == ("jax", 4, False)


def test_given_a_verdict_when_encoded_then_it_is_read_back() -> None:
    assert decode_verdict("key", encode_verdict(VERDICT)) == VERDICT


def test_earlier_verdict_version_has_unknown_framework() -> None:
    earlier = json.loads(encode_verdict(VERDICT))
    del earlier["framework"]
    facts = _facts(decode_verdict("key", json.dumps(earlier).encode()))
    assert (facts["traces"], facts["gain_share"], "framework" in facts) == (4, 0.2, False)


def test_large_verdict_drops_evidence_before_the_last_rules() -> None:
    told = [Fact(name="fault", value="x" * 400)]
    long = replace(FOUND, facts=told, evidence=[Proof(what="y" * 120, duration_ns=1)] * 3)
    without_evidence = decode_verdict("key", encode_verdict(replace(VERDICT, rules=[long] * 64)))
    assert len(without_evidence.rules) == 64
    assert not any(rule.evidence for rule in without_evidence.rules)
    huge = replace(VERDICT, rules=[replace(long, facts=told * 6)] * 64)
    body = encode_verdict(huge)
    assert len(body) <= MOST_BYTES
    assert 0 < len(decode_verdict("key", body).rules) < 64


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"\xff", b" " * (MOST_BYTES + 1), json.dumps({"format": 3}).encode()],
    ids=["empty", "list", "no fields", "no text", "too large", "other version"],
)
def test_hostile_verdict_is_refused_by_name(body: bytes) -> None:
    with pytest.raises(TelemetryFormatError, match="key"):
        decode_verdict("key", body)


def test_a_finding_that_is_over_speaks_of_an_earlier_capture() -> None:
    result = RULE.judge(VERDICT)
    assert result.kind == "gpu_gap"
    assert result.past_reason == f"In an earlier capture: {result.reason}"
    assert len(result.facts) <= MOST_FACTS


def test_facts_that_do_not_fit_are_counted_and_least_important() -> None:
    facts = [Fact(name=f"fact{number}", value=number) for number in range(4)]
    proofs = [Proof(what=f"gap {number}", duration_ns=9 - number) for number in range(3)]
    found = replace(FOUND, facts=[*FOUND.facts, *facts], evidence=proofs)
    result = RULE.judge(replace(VERDICT, rules=[found], traces=4))
    names = [fact.name for fact in result.facts]
    assert len(names) == MOST_FACTS
    assert {"gain_share", "ranks_affected", "rank"} <= set(names)
    assert [fact.series for fact in result.facts if fact.name == "evidence"] == ["gap 0"]
    assert isinstance(result.details, Mapping)
    assert result.details["facts_left_out"] == 4


@pytest.mark.parametrize(("rule", "kind"), [(rule, saying.kind) for rule in KERNEL_RULES for saying in rule.says])
def test_each_kind_has_words_and_each_that_fires_a_clause(rule: KernelRule, kind: str) -> None:
    facts = tuple(FACTS_OF[kind])
    summary, advice = rule.words(kind, facts)
    assert summary.endswith(".")
    assert advice.endswith(".")
    gain = (Fact(name="gain_share", value=0.2, unit="share"), Fact(name="gain_per_step", value=5, unit="ns"))
    said = rule.text(FactSheet(Status.FIRED, kind, (*facts, *gain)))
    assert said.clause or kind in {"queue_full", "trace_quality"}
