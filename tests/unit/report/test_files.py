"""A report's files: their order, their types, and that a page which cannot be made costs nothing but itself."""

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import Network
from tests.support.report_samples import bad_report, state_report
from tests.support.small_job import BUCKET, JOB, uploads
from trainguard.adapters.memory.faults import Crash
from trainguard.adapters.memory.profile_objects import MemoryProfileObjects
from trainguard.errors import ReportPageError, UnknownJobError
from trainguard.layout import ProfileRoot
from trainguard.report.build import build_report
from trainguard.report.document import Report
from trainguard.report.encode import encode_document
from trainguard.report.files import report_files
from trainguard.report.html import render
from trainguard.report.write import ReportWriter
from trainguard.rules.registry import RULE_NAMES

PLACE = ProfileRoot("", JOB).report
MANAGED = {f"profiler-reports/{rule}.json" for rule in RULE_NAMES}
STATE_REPORT = state_report()
JSON, HTML = "application/json", "text/html; charset=utf-8"


@pytest.fixture
def network() -> Network:
    """Return a world in which a job of two nodes is evaluated, but for its last minutes."""
    delivered = Network()
    seen = uploads()[:-10]
    for upload in seen:
        delivered.put(upload)
        delivered.announce(upload, upload.at)
    delivered.run_until(seen[-1].at + 60.0, batch_s=30.0)
    delivered.tick()
    return delivered


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[bytes, str]]:
    """Return what is put, in order."""
    seen: dict[str, tuple[bytes, str]] = {}
    put = MemoryProfileObjects.put

    def recorded(self: MemoryProfileObjects, bucket: str, key: str, body: bytes, content_type: str) -> None:
        put(self, bucket, key, body, content_type)
        seen[key.removeprefix(PLACE)] = (body, content_type)

    monkeypatch.setattr(MemoryProfileObjects, "put", recorded)
    return seen


def writer(network: Network) -> ReportWriter:
    world = network.world
    return ReportWriter(jobs=world.jobs, nodes=world.nodes, objects=world.objects)


def break_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Report) -> str:
        raise ZeroDivisionError("no ticks")

    monkeypatch.setattr(render, "render_report", fail)


def test_given_a_report_when_written_then_the_page_comes_before_the_document_which_is_the_last(
    network: Network, puts: dict[str, tuple[bytes, str]]
) -> None:
    puts.clear()
    written = writer(network).write(JOB, now=network.now)
    assert (written.uri, written.files) == (f"s3://{BUCKET}/{PLACE}report.json", len(RULE_NAMES) + 2)
    assert set(list(puts)[:-2]) == MANAGED
    assert list(puts)[-2:] == ["report.html", "report.json"]
    assert {name: kind for name, (_, kind) in puts.items()} == dict.fromkeys(puts, JSON) | {"report.html": HTML}
    assert puts["report.html"][0].lower().startswith(b"<!doctype html>")


def test_given_a_page_that_cannot_be_made_when_written_then_everything_else_is_and_the_fault_is_named(
    network: Network, puts: dict[str, tuple[bytes, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    puts.clear()
    break_page(monkeypatch)
    with pytest.raises(ReportPageError, match=f"report.html of job '{JOB}' cannot be made: ZeroDivisionError: no tic"):
        writer(network).write(JOB, now=network.now)
    assert set(puts) == MANAGED | {"report.json"}
    assert list(puts)[-1] == "report.json"
    assert json.loads(puts["report.json"][0])["fired"] == ["LowGPUUtilization", "StepOutlier"]


def test_given_no_page_asked_for_when_made_then_nothing_is_rendered(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_page(monkeypatch)
    built = build_report(network.job(), network.world.nodes.of_job(JOB), now=0.0)
    assert set(report_files(built, page=False)) == MANAGED | {"report.json"}


def test_given_a_crash_at_any_file_when_written_then_the_document_is_there_only_with_all_the_others(
    network: Network, puts: dict[str, tuple[bytes, str]]
) -> None:
    for calls in range(2, len(RULE_NAMES) + 4):
        puts.clear()
        network.world.faults.crash_after(calls)
        with pytest.raises(Crash):
            writer(network).write(JOB, now=network.now)
        network.world.faults.clear()
        assert "report.json" not in puts or set(puts) == {*MANAGED, "report.html", "report.json"}


def test_given_a_job_that_is_not_known_when_written_then_the_error_names_it(network: Network) -> None:
    with pytest.raises(UnknownJobError, match="'nobody'"):
        writer(network).write("nobody", now=0.0)


def test_given_a_report_when_encoded_then_it_is_read_back_and_its_time_lines_are_one_line() -> None:
    for report in (bad_report(), STATE_REPORT):
        body = encode_document(report)
        assert msgspec.json.decode(body, type=Report) == report
        assert list(json.loads(body)) == list(Report.__struct_fields__)
        (line,) = (line for line in body.split(b"\n") if b'"timelines": ' in line)
        assert json.loads(b"{" + line + b"}")["timelines"] == json.loads(body)["timelines"]


names = st.text(max_size=4)
scalars = st.floats() | st.integers(-(2**53), 2**53) | names | st.none()
inner = scalars | st.lists(scalars, max_size=3) | st.dictionaries(names, scalars, max_size=3)
details = st.dictionaries(names, inner | st.lists(inner, max_size=2), max_size=4)


@given(details)
def test_given_any_details_when_encoded_then_every_reader_takes_them(given_details: dict[str, object]) -> None:
    rule = msgspec.structs.replace(STATE_REPORT.rules[0], details=given_details)
    body = encode_document(msgspec.structs.replace(STATE_REPORT, rules=[rule]))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert set(json.loads(body, parse_constant=refuse)["rules"][0]["details"]) == set(given_details)


def test_given_two_nodes_when_a_report_is_made_from_state_then_it_is_there_within_a_second(network: Network) -> None:
    job, items = network.job(), network.world.nodes.of_job(JOB)
    took = []
    for _ in range(3):
        begun = time.process_time()
        report_files(build_report(job, items, now=0.0))
        took.append(time.process_time() - begun)
    assert min(took) < 1.0
