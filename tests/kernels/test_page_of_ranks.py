"""``kernels.html`` of several ranks, of two profiles, and of what only some traces have."""

import re

import numpy as np
import pytest
from msgspec.structs import replace

from tests.kernels.test_page import text_of
from tests.support.kernel_pages import MARKUP
from tests.support.kernel_ranks import job
from tests.support.kernel_traces import FOLDER, FP32_GEMM, read, real_profile, real_trace
from trainguard.kernels.comparison.compare import compared
from trainguard.kernels.comparison.text import signed
from trainguard.kernels.document import KernelProfiles, RankProfile
from trainguard.kernels.join import across_ranks
from trainguard.kernels.profile import rank_profile
from trainguard.kernels.timeline.build import timeline_of
from trainguard.report.html.kernels.page import MOST_BYTES, render_kernels
from trainguard.report.html.kernels.tables import kernel_totals
from trainguard.report.html.kernels.verdict import shown_findings


def document(ranks: list[RankProfile], before: list[RankProfile] | None = None) -> KernelProfiles:
    made = KernelProfiles(source="today", ranks=ranks, unread={}, across=across_ranks(ranks))
    if before is None:
        return made
    return replace(made, comparison=compared(KernelProfiles(source=MARKUP, ranks=before, unread={}), made))


def page(ranks: list[RankProfile], before: list[RankProfile] | None = None) -> str:
    return render_kernels(document(ranks, before), [])


def section(text: str, anchor: str) -> str:
    return text_of("</style>" + text.partition(f'<section id="{anchor}"')[2].partition("</section>")[0])


def test_late_rank_is_a_finding_named_in_the_verdict() -> None:
    made = page(job([6_000.0] * 4, delay_us={2: 3_000.0}))
    assert "LateRank" in section(made, "verdict")
    assert "Rank 2 comes last into" in section(made, "findings")
    assert "of each step" in section(made, "findings")


def test_matrix_has_waits_and_the_last_rank_by_step() -> None:
    made = section(page(job([6_000.0] * 4, delay_us={2: 1_500.0})), "ranks")
    assert "5 of 5 steps" in made
    waits = made.partition("Waits in")[2]
    rows = dict(re.findall(r"rank (\d) ((?:last ?|1\.5 ms ?)+)", waits))
    assert rows.pop("2").split() == ["last"] * 5
    assert [cells.split() for cells in rows.values()] == [["1.5", "ms"] * 5] * 3


def test_pipeline_stages_have_their_own_medians() -> None:
    made = section(page(job([6_000.0, 6_000.0, 9_000.0, 9_000.0], gemms={2: FP32_GEMM, 3: FP32_GEMM})), "ranks")
    assert "Median of set 1" in made
    assert "Median of set 2" in made
    assert "2 different sets of kernels" in made


def test_matrix_has_all_ranks_of_a_partial_document() -> None:
    ranks = job([6_000.0] * 6, delay_us={5: 1_500.0})
    whole = render_kernels(replace(document(ranks), ranks=ranks[:2], ranks_left_out=4), [])
    assert "6 traces" in text_of(whole)
    assert "4 more ranks They are in the table of ranks alone" in section(whole, "missing")
    made = section(whole, "ranks")
    assert "6 ranks" in made
    assert "rank 5" in made
    assert "5 of 5 steps" in made


def test_several_slow_ranks_are_one_finding_with_a_count() -> None:
    ranks = [replace(rank, collective_steps=[]) for rank in job([6_000.0] * 6 + [8_000.0, 9_000.0])]
    shown = [each for each in shown_findings(ranks, [], across_ranks(ranks)) if each["rule"] == "SlowRank"]
    assert len(shown) == 1
    assert shown[0]["where"] == "2 findings; the numbers are those of the first"
    assert shown[0]["finding"].summary.startswith("Rank 7 computes 1.50 times")


def test_two_profiles_explain_the_step_with_escaped_names() -> None:
    whole = page(job([6_000.0, 6_000.0], steps=8), job([5_000.0, 6_000.0], steps=4))
    made = section(whole, "comparison")
    assert "<script>window.__hacked" not in whole
    assert "rank 0: A typical step takes" in made
    assert "computation +1 ms" in made
    assert "exposed communication -1 ms" in made
    assert "slower +1 ms" in made
    assert whole.index('id="comparison"') < whole.index('id="gpu"')


def test_profile_compared_with_itself_has_no_change() -> None:
    ranks = job([6_000.0, 6_000.0])
    made = section(page(ranks, ranks), "comparison")
    assert "Kernels: none changed beyond the noise" in made
    assert "no difference above the noise" in made
    assert "+" not in made.partition("Why the step changed")[2]


def test_page_of_two_real_profiles_is_bounded() -> None:
    ranks = [real_profile("v100_rank1of2_diff_test")]
    made = page(ranks, [real_profile("a100_rank3of8_diff_control")])
    assert len(made.encode()) < MOST_BYTES
    assert "with less change are not shown" in section(made, "comparison")


def test_summed_ranks_have_the_deviation_of_all_runs() -> None:
    durations = ([10, 20, 30, 40], [100, 300])
    ranks = []
    for values in durations:
        rank = job([6_000.0])[0]
        mean, std = np.mean(values), np.std(values)
        entry = replace(
            rank.kernels[0], count=len(values), total_ns=sum(values), std_ns=round(std), occupancy=mean / 1_000
        )
        ranks.append(replace(rank, kernels=[entry]))
    (total,) = kernel_totals(ranks)
    assert total.std_ns == pytest.approx(np.std([*durations[0], *durations[1]]), abs=1)
    assert total.occupancy == pytest.approx((0.025 * 100 + 0.2 * 400) / 500)


@pytest.mark.parametrize(("ns", "text"), [(0, "0 ns"), (1_500, "+1.5 µs"), (-2_000_000, "-2 ms")])
def test_changes_have_their_sign(ns: int, text: str) -> None:
    assert signed(ns) == text


def test_given_counters_when_shown_then_they_are_a_table() -> None:
    trace = read((FOLDER / "forms" / "counter_tracks.json").read_bytes(), "trace.json")
    made = section(page([rank_profile(trace)]), "launches")
    assert "GPU 0: SM Active (%) 50 20 80 4" in made


def test_occupancy_has_tables_of_gpus_and_launches() -> None:
    made = section(page([real_profile("a100_ddp2_rank0_nccl_ns")]), "launches")
    assert "Multiprocessors with a block" in made
    assert "From launches to kernels" in made
    assert "Hardware counters" not in made


def test_head_of_a_job_says_time_software_and_number_of_ranks() -> None:
    head = text_of(page(job([6_000.0, 6_000.0], world_size=8))).partition("Verdict")[0]
    assert "PyTorch recorded 2024-04-01 09:44:06 UTC 5 steps 2 of 8 ranks" in head


def test_critical_paths_of_steps_are_bars_with_words() -> None:
    made = section(page([real_profile("resnet50_workers0")]), "steps")
    path = made.partition("Critical path")[2]
    assert "step 6" in path
    assert re.search(r"computation, 3\d\.?\d? %", path)
    assert "data loader" in path


def test_longest_run_of_evidence_can_be_shown() -> None:
    rank = real_profile("resnet50_workers0")
    (finding,) = (each for each in rank.findings if each.id == "kernels/TensorCoresIdle")
    evidence = finding.evidence[0]
    assert evidence.count > 1
    assert evidence.longest_start_ns is not None
    assert evidence.longest_ns is not None
    end = evidence.longest_start_ns + evidence.longest_ns
    stretch = f'data-process="0" data-from="{evidence.longest_start_ns}" data-to="{end}"'
    made = render_kernels(document([rank]), [(rank, timeline_of(real_trace("resnet50_workers0")))])
    assert f"{stretch} hidden>Show the longest in the timeline<" in made
