"""Answers for agents: no stale advice, a reason where less saved comes first, and what is missing of the unknown."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from tests.stragglers.judged import judged
from tests.stragglers.simulated import Job, Planted
from tests.unit.report_html import reports
from trainguard.report.agents.answers import before_larger, explained, what_ifs, why_of_kernels
from trainguard.report.agents.stragglers import of_stragglers, straggler_what_ifs
from trainguard.report.agents.verdict import of_report
from trainguard.report.document import Report
from trainguard.report.verdict_document import JobVerdict, Missing, VerdictWord
from trainguard.rules.change import ChangeCode
from trainguard.stragglers.causes import CauseKind, StragglerCause

HUNG = ("HungJob", {"finding_kind": "stopped", "severity": "critical"})


def report(status: str, *findings: tuple[str, dict[str, Any]], code: ChangeCode = ChangeCode.FIND_HANG) -> Report:
    entries = [reports.finding(rule, **given) for rule, given in findings]
    whole = reports.report(findings=entries, job=changed(reports.job(), status=status))
    first = entries[0].rule if entries else None
    return changed(whole, verdict=changed(whole.verdict, rule=first, change_code=code))


def word(verdict: VerdictWord, *missing: Missing, active: bool = False) -> JobVerdict:
    return JobVerdict(
        generated_at=reports.AT, job="bert", verdict=verdict, why="", active=active, missing=list(missing)
    )


@pytest.mark.parametrize("status", ["InProgress", "Completed", "Failed", "Stopped"])
def test_an_ended_job_is_told_about_the_next_run_alone(status: str) -> None:
    found, runs = report(status, HUNG), status == "InProgress"
    said = [
        of_report(found, word(VerdictWord.WASTED)).do,
        explained(found)["findings"][0]["do"],
        what_ifs(found)["changes"][0]["do"],
    ]
    assert said == [ChangeCode.FIND_HANG.do if runs else ChangeCode.FIND_HANG.do_after] * 3
    assert ("restart from the last checkpoint" in said[0]) is runs


def test_no_change_of_an_ended_job_stops_or_restarts_it() -> None:
    words = ("restart", "stop,", "then end the", "go back", "stop early")
    assert not [code for code in ChangeCode if any(each in code.do_after.lower() for each in words)]


@pytest.mark.parametrize(
    ("missing", "active", "change"),
    [
        (Missing.GPU_SAMPLES, True, "collect_data"),
        (Missing.MORE_TIME, True, "wait_for_data"),
        (Missing.MORE_TIME, False, "collect_data"),
        (Missing.NEWER_DATA, True, "wait_for_data"),
        (Missing.EVALUATION, False, "collect_data"),
    ],
)
def test_unknown_says_what_is_missing_and_never_nothing(missing: Missing, active: bool, change: str) -> None:
    found = of_report(report("InProgress", code=ChangeCode.NOTHING), word(VerdictWord.UNKNOWN, missing, active=active))
    assert (found.change, found.missing) == (change, [missing])
    assert of_report(report("InProgress", code=ChangeCode.NOTHING), word(VerdictWord.HEALTHY)).change == "nothing"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"wasted_share": 0.3}, {"wasted_share": 0.2}, None),
        ({"wasted_share": 0.2}, {"wasted_share": 0.204}, None),
        ({"wasted_share": 0.1}, {"wasted_share": 0.4, "explained_by": "IOBottleneck"}, "is_its_cause"),
        ({"wasted_share": 0.1}, {"wasted_share": 0.4, "ongoing": False}, "goes_on"),
        ({"wasted_share": 0.1, "severity": "critical"}, {"wasted_share": 0.4}, "more_severe"),
        ({"wasted_share": None}, {"wasted_share": 0.4}, "risks_more_than_it_has_lost"),
        ({"wasted_share": 0.1}, {"wasted_share": 0.4}, "loses_more_now"),
    ],
)
def test_what_saves_less_and_stands_first_says_why(
    first: dict[str, Any], second: dict[str, Any], reason: str | None
) -> None:
    found = what_ifs(report("InProgress", ("IOBottleneck", first), ("LowGPUUtilization", second)))
    assert [each.get("before_larger") for each in found["changes"]] == [reason, None]
    shares = [given["wasted_share"] or 0.0 for given in (first, second)]
    assert found["saves_share_together"] == pytest.approx(sum(shares))


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"sure": True}, {"sure": False}, "is_sure"),
        ({"sure": True}, {"sure": True, "rule": "kernels/GpuBusyLow"}, "larger_is_a_symptom"),
        ({"sure": True, "rule": "kernels/QueueFull"}, {"sure": True}, "informs_less"),
    ],
)
def test_kernel_findings_say_why_too(first: Mapping[str, Any], second: Mapping[str, Any], reason: str) -> None:
    findings = [{"rule": "kernels/SyncStall", **each} for each in (first, second)]
    assert before_larger([0.1, 0.2], why_of_kernels(findings)) == [{"before_larger": reason}, {}]


def test_a_rank_that_saves_nothing_alone_names_its_group() -> None:
    found = judged(replace(Job(), planted=(Planted("host", 1.5, 3),)).csv())
    answer = straggler_what_ifs(found)
    assert answer["saves_share_together"] > 0.1
    assert answer["ranks"][0]["saves_share"] < 0.02
    group = answer["ranks"][0]["with_group"]
    assert group["saves_share"] == answer["changes"][0]["saves_share"] > 0.1
    verdict = of_stragglers("t", found)
    assert verdict.verdict is VerdictWord.WASTED
    assert verdict.wasted_share == pytest.approx(1 - 1 / found.slowdown, abs=1e-3)


def test_a_part_of_the_loss_is_told_where_no_cause_explains_most() -> None:
    found = judged(replace(Job(), planted=(Planted("host", 1.5, 3),)).csv())
    part = StragglerCause(kind=CauseKind.STAGE, share=0.4, saves=0.2, stage=1)
    verdict = of_stragglers("t", changed(found, causes=[], parts=[part]))
    assert (verdict.verdict, verdict.confidence, verdict.saves_share) == (VerdictWord.WASTED, "medium", 0.2)
    assert of_stragglers("t", changed(found, causes=[], parts=[changed(part, saves=0.01)])).change == "nothing"


def test_the_codes_of_what_is_missing_are_in_the_schema() -> None:
    schema = json.loads((Path(__file__).parents[3] / "docs/schemas/agent-verdict-1.json").read_text("utf-8"))
    assert set(schema["$defs"]["Missing"]["enum"]) == set(Missing)
