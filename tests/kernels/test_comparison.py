"""What a comparison calls slower: runs and steps beyond the noise, never sums over other amounts of work."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.kernel_traces import A100, BF16_GEMM, FP32_GEMM, NCCL, TraceWriter, judged, real_profile
from trainguard.kernels.changes import RankComparison
from trainguard.kernels.comparison import text
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.overview import summary_of

# How long a run takes, in microseconds, by its step and its place in it.
Lasts = Callable[[int, int], float]


def profile(
    kernels: Mapping[str, Lasts | float],
    *,
    steps: int = 6,
    runs: Mapping[str, int] | None = None,
    host_us: float = 10.0,
    wait_us: Mapping[int, float] | None = None,
    marked: bool = True,
    gpu: str = "NVIDIA A100",
    shapes: str = "",
) -> RankProfile:
    """Return a profile of steps in which kernels follow each other, each launched ``host_us`` after the last ended."""
    made = TraceWriter(gpus=[{**A100, "name": gpu}])
    at = 0.0
    number = 0
    for step in range(steps):
        begin = at
        for name, lasts in kernels.items():
            for place in range((runs or {}).get(name, 1)):
                number += 1
                at += host_us
                took = lasts(step, place) if callable(lasts) else lasts
                if shapes:
                    args = {"External id": number, "Input Dims": shapes, "Input type": ["float"]}
                    made.event("cpu_op", "aten::mm", at - 6, 5, args=args)
                made.kernel(name, at, took, launch=at - 5)
                if shapes:
                    made.events[-1]["args"]["External id"] = number
                at += took
        at += (wait_us or {}).get(step, 0.0)
        if marked:
            made.step(step, begin, at - begin)
    return judged(made.text())


def beside(before: RankProfile, after: RankProfile) -> RankComparison:
    old, new = (KernelProfiles(source="a", ranks=[rank], unread={}) for rank in (before, after))
    return compared(old, new).ranks[0]


def changes(found: RankComparison) -> dict[str, str]:
    return {each.name: each.change for each in found.kernels if each.change != "same"}


def test_fewer_longer_runs_without_steps_are_slower_ones() -> None:
    before = profile({BF16_GEMM: 1_000.0}, steps=20, marked=False)
    found = beside(before, profile({BF16_GEMM: 1_100.0}, steps=16, marked=False))
    assert changes(found) == {BF16_GEMM: "slower"}
    assert found.change == "slower"
    assert found.worsened == pytest.approx(0.1, abs=0.02)


def test_half_of_the_steps_is_no_change() -> None:
    found = beside(
        profile({BF16_GEMM: 1_000.0, FP32_GEMM: 300.0}, steps=12), profile({BF16_GEMM: 1_000.0, FP32_GEMM: 300.0})
    )
    assert (found.change, changes(found)) == ("same", {})


def test_an_odd_step_moves_no_step() -> None:
    usual = profile({BF16_GEMM: 1_000.0})
    found = beside(usual, profile({BF16_GEMM: 1_000.0}, wait_us={2: 20_000.0}))
    assert found.change == "same"
    assert found.is_worse
    assert "single steps are longer" in text.headline(found)
    slower = beside(usual, profile({BF16_GEMM: 1_200.0}, wait_us={2: 20_000.0}))
    assert (slower.change, changes(slower)) == ("slower", {BF16_GEMM: "slower"})


def test_a_wait_between_steps_is_a_part_of_them() -> None:
    def waits(between_us: float) -> RankProfile:
        made = TraceWriter()
        for step in range(6):
            at = (2_000.0 + between_us) * step
            made.step(step, at, 2_000.0)
            made.kernel(BF16_GEMM, at + 100, 1_800.0, launch=at + 10)
        return judged(made.text())

    found = beside(waits(0.0), waits(3_000.0))
    assert found.step is not None
    assert (found.step.before_ns, found.step.after_ns) == (2_000_000, 5_000_000)
    assert found.change == "slower"
    assert found.step.parts["idle_host"] == pytest.approx(3_000_000, rel=0.02)


def test_steps_that_wait_for_data_now_and_then_are_told() -> None:
    found = beside(profile({BF16_GEMM: 900.0}), profile({BF16_GEMM: 900.0}, wait_us={1: 2_000.0, 4: 2_000.0}))
    assert found.step is not None
    assert found.step.single_steps == "longer"
    longer = found.step.mean_after_ns - found.step.mean_before_ns
    assert sum(found.step.mean_parts.values()) == longer
    assert longer == pytest.approx(667_000, rel=0.02)


def test_more_short_runs_do_not_make_a_kernel_faster() -> None:
    def mixed(_step: int, place: int) -> float:
        return 1_000.0 if place < 4 else 50.0

    found = beside(profile({BF16_GEMM: mixed}, runs={BF16_GEMM: 4}), profile({BF16_GEMM: mixed}, runs={BF16_GEMM: 12}))
    assert changes(found) == {BF16_GEMM: "more_runs"}


@pytest.mark.parametrize("steps", [3, 5, 10])
@pytest.mark.parametrize("jitter", [0.02, 0.15])
def test_what_differs_by_chance_is_the_same(steps: int, jitter: float) -> None:
    rng = random.Random(steps)

    def noisy(_step: int, _place: int) -> float:
        return 1_000.0 * (1.0 + jitter * rng.uniform(-1, 1))

    told = 0
    for _ in range(20):
        pair = [profile({BF16_GEMM: noisy, FP32_GEMM: noisy}, runs={BF16_GEMM: 3}, steps=steps) for _ in range(2)]
        found = beside(*pair)
        told += found.change != "same" or bool(changes(found))
    assert told <= 1


@settings(max_examples=20, deadline=None)
@given(st.integers(3, 9), st.integers(3, 9), st.floats(1.1, 2.0))
def test_a_slower_kernel_explains_the_step(before: int, after: int, times: float) -> None:
    old = profile({BF16_GEMM: 2_000.0, NCCL: 200.0}, steps=before)
    found = beside(old, profile({BF16_GEMM: 2_000.0 * times, NCCL: 200.0}, steps=after))
    assert found.step is not None
    longer = found.step.after_ns - found.step.before_ns
    assert found.change == "slower"
    assert found.step.parts["compute"] == pytest.approx(longer, rel=0.02)
    assert sum(each.delta_ns for each in found.kernels) == pytest.approx(longer, rel=0.02)
    assert beside(old, old).change == "same"


def test_a_host_that_launches_late_is_told_as_idle_time() -> None:
    found = beside(profile({BF16_GEMM: 1_000.0}), profile({BF16_GEMM: 1_000.0}, host_us=300.0))
    assert found.step is not None
    assert found.step.parts["idle_host"] == pytest.approx(290_000, rel=0.05)
    assert changes(found) == {}
    assert "idle, waiting for the host +2" in " ".join(text.causes(found))


@pytest.mark.parametrize("marked", [True, False])
def test_what_got_slower_is_not_healthy(marked: bool) -> None:
    before = profile({BF16_GEMM: 900.0}, steps=20, marked=marked)
    after = replace(profile({BF16_GEMM: 900.0}, steps=18, host_us=90.0, marked=marked), findings=[])
    old = KernelProfiles(source="a", ranks=[before], unread={})
    new = KernelProfiles(source="b", ranks=[after], unread={})
    assert summary_of(new, []).word == "Healthy"
    said = summary_of(replace(new, comparison=compared(old, new)), [])
    assert said.word == "Slower than before"


@pytest.mark.parametrize(
    ("more", "verdict", "aspects"),
    [
        ({}, "yes", set()),
        ({"gpu": "NVIDIA H100 80GB HBM3"}, "no", {"gpu"}),
        ({"shapes": "[[128,64],[64,64]]"}, "no", {"shapes"}),
        ({"steps": 2}, "in_part", {"steps"}),
    ],
)
def test_what_differs_is_named_first(more: dict[str, Any], verdict: str, aspects: set[str]) -> None:
    usual: dict[str, Any] = {"shapes": "[[64,64],[64,64]]"}
    settings_of: list[dict[str, Any]] = [usual, usual | more]
    before, after = (profile({BF16_GEMM: 1_000.0}, **each) for each in settings_of)
    found = beside(before, after).comparable
    assert found.verdict == verdict
    assert {each.aspect for each in found.differences} == aspects
    for each in found.differences:
        assert each.after in text.comparable(found)


def test_another_gpu_is_no_verdict_on_the_program() -> None:
    old = KernelProfiles(source="a", ranks=[profile({BF16_GEMM: 900.0})], unread={})
    new = KernelProfiles(source="b", ranks=[profile({BF16_GEMM: 1_900.0}, gpu="Tesla T4")], unread={})
    said = summary_of(replace(new, comparison=compared(old, new)), [])
    assert said.word == "Healthy"
    assert said.sentences[-1] == "The older profile is of other work or another machine."


def test_other_software_and_options_are_named() -> None:
    usual = profile({BF16_GEMM: 1_000.0})
    before = replace(usual, software={"CUDA runtime": "12.4", "with_stack": "off"})
    found = beside(before, replace(usual, software={"CUDA runtime": "12.8", "with_stack": "on"})).comparable
    assert {(each.aspect, each.name, each.before, each.after) for each in found.differences} == {
        ("software", "CUDA runtime", "12.4", "12.8"),
        ("recording", "with_stack", "off", "on"),
    }


def test_another_program_is_not_compared_as_the_same_work() -> None:
    found = beside(profile({BF16_GEMM: 1_000.0}, marked=False), profile({FP32_GEMM: 1_000.0}, marked=False))
    assert (found.step, found.comparable.verdict) == (None, "no")
    assert changes(found) == {BF16_GEMM: "gone", FP32_GEMM: "came"}


def test_first_step_is_without_work_of_before_the_profiler() -> None:
    """The host runs ahead: the GPU is still busy with steps that were not recorded when the first one begins."""
    made = TraceWriter()
    made.kernel(BF16_GEMM, 0.0, 3_000.0, launch=None)
    for step in range(4):
        made.step(step, 100.0 * step, 100.0)
        made.kernel(BF16_GEMM, 3_000.0 + 1_000.0 * step, 1_000.0, launch=100.0 * step + 10)
    assert [step.gpu_duration_ns for step in judged(made.text()).steps] == [1_000_000] * 4


def test_versions_and_options_are_those_of_the_trace() -> None:
    software = real_profile("h100_bert_small_1step").software
    assert {name: software[name] for name in ("CUDA runtime", "CUDA driver", "with_stack")} == {
        "CUDA runtime": "12.4",
        "CUDA driver": "12.9",
        "with_stack": "on",
    }
