"""Two profiles beside each other: the step explained by its parts, and what came, went and changed."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from typer.testing import CliRunner

from tests.support.kernel_ranks import job
from tests.support.kernel_traces import BF16_GEMM, FP32_GEMM, NCCL, TraceWriter, judged, real_names, real_profile
from trainguard.cli.main import app
from trainguard.kernels.changes import KernelComparison
from trainguard.kernels.comparison.compare import MOST_ENTRIES, compared
from trainguard.kernels.costs import short_shapes
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.entries import OperatorEntry


def beside(before: list[RankProfile], after: list[RankProfile]) -> KernelComparison:
    old, new = (KernelProfiles(source=name, ranks=ranks, unread={}) for name, ranks in (("a", before), ("b", after)))
    return compared(old, new)


def test_a_profile_beside_itself_changes_nothing() -> None:
    ranks = job([6_000.0, 6_000.0])
    for rank in beside(ranks, ranks).ranks:
        assert rank.step is not None
        assert set(rank.step.parts.values()) == {0}
        assert {each.change for each in rank.kernels} == {"same"}


def test_longer_work_is_told_as_computation_and_as_its_kernel() -> None:
    (rank, _) = beside(job([5_000.0, 6_000.0], steps=4), job([6_000.0, 6_000.0], steps=8)).ranks
    assert rank.step is not None
    assert rank.step.parts["compute"] == pytest.approx(1_000_000, rel=0.01)
    assert rank.step.parts["exposed_communication"] == pytest.approx(-1_000_000, rel=0.01)
    changes = {each.name: (each.change, each.delta_ns, each.before_runs, each.after_runs) for each in rank.kernels}
    assert changes[BF16_GEMM] == ("slower", 1_000_000, 1.0, 1.0)
    assert changes[NCCL] == ("faster", -1_000_000, 1.0, 1.0)


def test_a_kernel_in_place_of_another_came_and_the_other_went() -> None:
    (rank, _) = beside(job([6_000.0, 6_000.0]), job([6_000.0, 6_000.0], gemms={0: FP32_GEMM})).ranks
    assert {each.name: each.change for each in rank.kernels if each.change != "same"} == {
        BF16_GEMM: "gone",
        FP32_GEMM: "came",
    }


def test_without_steps_the_windows_are_compared() -> None:
    made = TraceWriter()
    made.kernel(BF16_GEMM, 100, 1_000, launch=10)
    (rank,) = beside(job([6_000.0]), [judged(made.text())]).ranks
    assert (rank.per, rank.step) == ("window", None), "of one run it is not known how much work that is"
    assert rank.kernels[0].before_runs == 5.0
    assert rank.kernels[0].before_ns is None


def test_ranks_are_paired_by_number_and_the_others_are_named() -> None:
    ranks = job([6_000.0] * 3)
    said = beside([ranks[0], ranks[1]], [ranks[1], replace(ranks[2], rank=None), ranks[2]])
    assert [rank.rank for rank in said.ranks] == [1]
    assert said.notes == [
        "Only this profile has rank 2.",
        "Only the other profile has rank 0.",
        "1 trace without a rank is not compared.",
    ]


def test_operators_without_shapes_are_joined_by_name() -> None:
    """One profile records shapes, the other does not: nothing came or went."""
    (rank,) = job([6_000.0])
    one = OperatorEntry(
        name="aten::mm", shapes="[[64,512],[512,8],[]]", count=10, kernel_ns=8_000_000, precision="fp32", flops=None,
        bytes=None, tflops=None, gb_per_s=None, roofline_share=None, bound=None,
    )  # fmt: skip
    other = replace(one, shapes="[[8,8]]", kernel_ns=4_000_000)
    shaped, bare = replace(rank, operators=[one, other]), replace(rank, operators=[replace(one, shapes="", count=20)])
    (both,) = beside([shaped], [bare]).ranks
    assert [(each.name, each.shapes, each.change) for each in both.operators] == [("aten::mm", "", "faster")]
    assert both.operators[0].before_ns == 2_400_000
    (both,) = beside([shaped], [replace(rank, operators=[one])]).ranks
    assert [(each.shapes, each.change) for each in both.operators] == [
        ("[[8,8]]", "gone"),
        ("[[64,512],[512,8],[]]", "same"),
    ]


@pytest.mark.parametrize(
    ("shapes", "short"),
    [("[[64,512],[],[512]]", "64x512, 512"), ("[[[1,2],[3]],[4]]", "…, 4"), ("", ""), ("{}", ""), ("[[", "")],
)
def test_a_short_shape(shapes: str, short: str) -> None:
    assert short_shapes(shapes) == short


@given(st.sampled_from(real_names()), st.sampled_from(real_names()))
def test_parts_add_up_to_the_change_of_the_step(before: str, after: str) -> None:
    (rank,) = beside([real_profile(before)], [real_profile(after)]).ranks
    if rank.step is not None:
        assert sum(rank.step.parts.values()) == rank.step.after_ns - rank.step.before_ns
    deltas = [abs(each.delta_ns) for each in rank.kernels]
    assert deltas == sorted(deltas, reverse=True)
    assert len(deltas) <= MOST_ENTRIES


def test_the_command_compares_and_shows_ranks(tmp_path: Path) -> None:
    for name, work in (("old", 5_000.0), ("new", 6_000.0)):
        made = TraceWriter()
        for step in range(4):
            made.step(step, 10_000.0 * step, 10_000.0)
            made.kernel(BF16_GEMM, 10_000.0 * step + 500, work, launch=10_000.0 * step + 10)
        (tmp_path / f"{name}.pt.trace.json").write_bytes(made.text())
    words = [str(tmp_path / "new.pt.trace.json"), "--compare", str(tmp_path / "old.pt.trace.json")]
    result = CliRunner().invoke(app, ["kernels", *words, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "A typical step takes 10 ms, 10 ms before: no difference above the noise of 2 %." in result.output
    assert "Slower a run" in result.output
    document = json.loads((tmp_path / "out" / "kernels.json").read_bytes())
    assert document["comparison"]["ranks"][0]["step"]["parts"]["compute"] == 1_000_000
    assert document["across"] is None
