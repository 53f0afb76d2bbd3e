"""Marks on the time lines: every episode of every finding, from its onset on, where it was."""

import pytest

from trainguard.core.finding import EpisodeEntry
from trainguard.core.timestamps import iso_time
from trainguard.report.document import FindingEntry
from trainguard.report.job.build import MAX_MARKS, TEXT_LENGTH, marks, unmarked

START = 1_795_248_000.0


def episode(start: float, end: float | None = None, node: str | None = None, *gpus: str) -> EpisodeEntry:
    ends = None if end is None else iso_time(START + end)
    return EpisodeEntry(start=iso_time(START + start), end=ends, node=node, gpus=list(gpus))


def finding(rule: str, *episodes: EpisodeEntry, earlier: int = 0, reason: str = "It is low.") -> FindingEntry:
    return FindingEntry(
        rule=rule,
        severity="high",
        score=40.0,
        ongoing=False,
        affected_share=None,
        wasted_share=None,
        worst=None,
        nodes_affected=1,
        nodes=1,
        reason=reason,
        advice=None,
        cost=None,
        explained_by=None,
        episodes=list(episodes),
        earlier_episodes=earlier,
    )


def test_marks_run_from_onset_to_end_in_order_of_time() -> None:
    low = finding("LowGPUUtilization", episode(60.0, 90.0, "algo-2", "gpu3"), episode(300.0, None, "algo-2"))
    cpu = finding("CPUBottleneck", episode(120.0, 130.0))
    shown = [
        (mark.at - START, mark.end and mark.end - START, mark.rule, mark.node, mark.gpu) for mark in marks([low, cpu])
    ]
    assert shown == [
        (60.0, 90.0, "LowGPUUtilization", "algo-2", "gpu3"),
        (120.0, 130.0, "CPUBottleneck", None, None),
        (300.0, None, "LowGPUUtilization", "algo-2", None),
    ]
    assert unmarked([low, cpu]) == []


@pytest.mark.parametrize("gpus", [("gpu0", "gpu1"), ()])
def test_mark_of_several_gpus_or_none_is_of_the_node(gpus: tuple[str, ...]) -> None:
    (mark,) = marks([finding("LowGPUUtilization", episode(1.0, 2.0, "algo-1", *gpus))])
    assert (mark.node, mark.gpu) == ("algo-1", None)


def test_each_finding_keeps_its_newest_mark_beyond_the_limit() -> None:
    many = finding("LowGPUUtilization", *(episode(float(at)) for at in range(MAX_MARKS)))
    few = finding("CPUBottleneck", episode(1e6), episode(2e6))
    found = marks([many, few])
    assert len(found) == MAX_MARKS
    assert [mark.at - START for mark in found if mark.rule == "CPUBottleneck"] == [1e6, 2e6]
    assert max(mark.at - START for mark in found if mark.rule == "LowGPUUtilization") == MAX_MARKS - 1.0
    assert unmarked([many, few]) == ["2 of 258 episodes are not marked: of each finding, the newest are."]


def test_unmarked_earlier_episodes_are_mentioned() -> None:
    assert unmarked([finding("A", episode(1.0), earlier=4)]) == [
        "4 of 5 episodes are not marked: of each finding, the newest are."
    ]


def test_mark_of_a_long_reason_has_a_short_text() -> None:
    (mark,) = marks([finding("CPUBottleneck", episode(1.0), reason="x" * 1_000)])
    assert len(mark.text) == TEXT_LENGTH
    assert mark.text.endswith("x…")
