"""Kernel traces in a job's folder: the same rows as in the stack, the newest capture alone, within bounds."""

import gzip
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import FIRST, HELD_UP, ROOT, Live, capture
from tests.support.kernel_traces import real_text
from tests.support.small_job import BUCKET, JOB, Upload
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.engine.installed import FAMILIES
from trainguard.engine.kernels.session import CaptureState
from trainguard.engine.streams.session import state_of
from trainguard.kernels.columns import Trace
from trainguard.kernels.listing import ListingRequest
from trainguard.kernels.readers.reading import read_any
from trainguard.local import kernels as local_kernels
from trainguard.local.analysis import evaluated_profile
from trainguard.local.api import analyze
from trainguard.local.engine import evaluation_rows
from trainguard.local.kernels import find_traces, traces_below
from trainguard.local.runs import open_job
from trainguard.local.traces import list_kernels
from trainguard.report.html.render import render_report

LOG = "checkpoints/log.csv"
DAMAGES = {
    "empty": b"",
    "no trace": b"\x00\x01" * 500,
    "a broken gzip stream": gzip.compress(b'{"traceEvents": [')[:12] + b"\x00" * 200,
    "without events": b'{"traceEvents": []}',
    "of another form": b'{"traceEvents": [1, null, {"ph": "X"}, []]}',
}


def folder_of(tmp_path: Path, uploads: Sequence[Upload]) -> Path:
    """Write a job's folder with traces and a log of its training."""
    job = tmp_path / JOB
    for upload in uploads:
        file = tmp_path / upload.key
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(upload.body)
        os.utime(file, (upload.at, upload.at))
    (job / LOG).parent.mkdir(parents=True, exist_ok=True)
    (job / LOG).write_text("step,loss\n" + "".join(f"{step},{1 / (step + 1)}\n" for step in range(40)))
    os.utime(job / LOG, (FIRST, FIRST))
    return job


def rows_of(job: Path) -> Mapping[str, RuleRow]:
    """Return the rows of the family of the job as a whole, by rule."""
    profile = open_job(str(job))
    known = JobRecord(job=JOB, arn=f"unknown:{JOB}", bucket="", prefix="")
    done = evaluated_profile(profile, known, FAMILIES.plan(known), None, timelines=False)
    rows = evaluation_rows(done, expires_at=0)
    return {row.target.removeprefix("kernels/"): row for row in rows if row.target.startswith("kernels/")}


def said(rows: Mapping[str, RuleRow]) -> dict[str, RuleRow]:
    """Return rows without what says when they were written, what was paid, and that the stack's job has not ended."""
    same = {}
    for name, row in rows.items():
        episodes = tuple(
            replace(each, end=None, wasted_s=None, cost=None, currency=None) for each in row.finding.episodes
        )
        finding = replace(row.finding, episodes=episodes, cost=None)
        same[name] = replace(row, finding=finding, wasted_percent=None, expires_at=None, fired_at=None, generation=0)
    return same


def with_bad(uploads: Sequence[Upload], damage: str) -> list[Upload]:
    """Return traces of which that of rank 1 is damaged: another text, or its first half."""
    body = DAMAGES.get(damage, uploads[1].body[: len(uploads[1].body) // 2])
    return [uploads[0], replace(uploads[1], body=body), *uploads[2:]]


@pytest.mark.parametrize("delays", [{}, HELD_UP], ids=["even ranks", "a late rank"])
@pytest.mark.parametrize("folder", ["kernel-traces/", "output/logs/"])
def test_a_folder_has_the_rows_of_the_stack(tmp_path: Path, delays: dict[int, float], folder: str) -> None:
    uploads = capture(delay_us=delays, folder=folder)
    live = Live()
    live.write([Upload(FIRST - 300.0, f"{ROOT.folder}{LOG}", b"step,loss\n")])
    live.until(FIRST - 120.0)
    live.write(uploads)
    live.until(FIRST + 1_800.0)
    deployed = {name: row for name, row in live.rows().items() if row.target.startswith("kernels/")}
    here = rows_of(folder_of(tmp_path, uploads))
    assert said(here) == said(deployed)
    assert (here["LateRank"].status is Status.FIRED) == bool(delays)


@pytest.mark.parametrize("damage", ["cut off", "no trace"])
def test_a_damaged_trace_is_the_same_here_as_there(tmp_path: Path, damage: str) -> None:
    uploads = with_bad(capture(delay_us=HELD_UP), damage)
    live = Live()
    live.write(uploads)
    live.until(FIRST + 1_800.0)
    deployed = {name: row for name, row in live.rows().items() if row.target.startswith("kernels/")}
    here = rows_of(folder_of(tmp_path, uploads))
    assert said(here) == said(deployed)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_trace_is_counted_and_the_rest_judged(tmp_path: Path, damage: str) -> None:
    report = analyze(folder_of(tmp_path, with_bad(capture(delay_us=HELD_UP), damage)))
    kernels = report.document.kernels
    assert kernels is not None
    assert kernels.verdict.traces == 4
    assert kernels.verdict.judged == 3
    if kernels.verdict.unread:
        assert any("1 of 4 kernel traces could not be read" in note for note in report.notes)
        assert kernels.verdict.unread_why
    assert any(rule.rule.startswith("training/") for rule in report.document.rules)


def test_where_no_trace_can_be_read_the_rules_say_so(tmp_path: Path) -> None:
    uploads = [replace(each, body=b"no trace at all") for each in capture()]
    report = analyze(folder_of(tmp_path, uploads))
    assert report.document.kernels is not None
    assert "None of 4 traces" in report.document.kernels.sentence
    (note,) = (each for each in report.notes if "could not be read" in each)
    assert note.startswith("4 of 4 kernel traces could not be read")


def test_only_the_newest_capture_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def noted(name: str, *more: Any) -> Trace:
        read.append(name)
        return read_any(name, *more)

    monkeypatch.setattr(local_kernels, "read_any", noted)
    job = folder_of(tmp_path, [*capture(delay_us=HELD_UP), *capture(FIRST + 3_600.0)])
    report = analyze(job)
    assert len(read) == 4
    assert report.document.kernels is not None
    assert not {each.rule for each in report.document.kernels.verdict.rules} & {"kernels/LateRank"}
    assert "Of 2 captures of kernel traces the newest one, of 4 traces, is judged." in report.notes


@pytest.mark.parametrize(("name", "value"), [("MOST_TRACES", 3), ("MOST_BYTES", 120_000)])
def test_what_is_beyond_the_bounds_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int
) -> None:
    uploads = capture(steps=40)
    if name == "MOST_BYTES":
        value = len(uploads[0].body) * 3 + 100
    monkeypatch.setattr(local_kernels, name, value)
    report = analyze(folder_of(tmp_path, uploads))
    assert report.document.kernels is not None
    assert report.document.kernels.verdict.traces == 3
    said_here = "1 of 4 kernel traces of the newest capture are left out"
    assert any(note.startswith(said_here) for note in report.notes)
    assert any(note.startswith(said_here) for note in report.document.kernels.verdict.notes)


def test_a_job_without_traces_has_no_such_rules(tmp_path: Path) -> None:
    report = analyze(folder_of(tmp_path, []))
    assert report.document.kernels is None
    assert not [rule for rule in report.document.rules if rule.rule.startswith("kernels/")]


def test_results_of_trainguard_are_no_traces(tmp_path: Path) -> None:
    (one, *_) = capture()
    key = f"{ROOT.folder}rule-output/kernel-traces/rank0.pt.trace.json"
    assert find_traces(folder_of(tmp_path, [replace(one, key=key)])) is None


def test_the_page_links_to_no_file_that_nobody_wrote(tmp_path: Path) -> None:
    report = analyze(folder_of(tmp_path, capture(delay_us=HELD_UP)))
    assert report.document.kernels is not None
    assert report.document.kernels.page is None
    page = render_report(report.document)
    assert 'href="kernels.html"' not in page
    assert "trainguard kernels FOLDER" in page


def test_a_real_trace_in_a_folder_is_judged_with_its_shares(tmp_path: Path) -> None:
    job = folder_of(tmp_path, [])
    file = job / "kernel-traces" / "step-40" / "worker.pt.trace.json.gz"
    file.parent.mkdir(parents=True)
    file.write_bytes(gzip.compress(real_text("resnet50_workers0")))
    profile = open_job(str(job))
    known = JobRecord(job=JOB, arn=f"unknown:{JOB}", bucket="", prefix="")
    done = evaluated_profile(profile, known, FAMILIES.plan(known), None, timelines=False)
    (record,) = (each for each in done.records if each.key.family == "kernels")
    verdict = state_of(record, CaptureState).verdict
    assert verdict is not None
    assert verdict.rules[0].rule == "kernels/LoaderBound"
    assert verdict.shares is not None
    assert verdict.shares.loader == pytest.approx(0.33, abs=0.01)
    assert list_kernels(str(job), ListingRequest()).profiles[0].status == "not judged"


def test_a_prefix_in_a_bucket_has_the_captures_of_its_job_alone() -> None:
    live = Live()
    live.write([*capture(), *capture(FIRST + 3_600.0, folder="output/logs/")], announced=False)
    (one, *_) = capture()
    live.write([replace(one, key=f"another-job/kernel-traces/{one.key.rpartition('/')[2]}")], announced=False)
    found = traces_below(live.world.objects, BUCKET, JOB)
    assert found is not None
    assert (found.captures, len(found.newest.traces), found.newest.folder) == (2, 4, f"{ROOT.folder}output/logs/")
    assert traces_below(live.world.objects, BUCKET, "no-job") is None
