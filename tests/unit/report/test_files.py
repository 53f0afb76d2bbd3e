"""A report's files: their order, their types, and that a page which cannot be made costs nothing but itself."""

import json
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.delivery import Network
from tests.support.faults import Crash
from tests.support.memory import MemoryProfileObjects
from tests.support.report_samples import bad_report, state_report
from tests.support.small_job import JOB, uploads
from trainguard.core.errors import ReportPageError
from trainguard.core.layout import ProfileRoot
from trainguard.engine.streams.session import items_of
from trainguard.report.document import Report, encode_document
from trainguard.report.html import render
from trainguard.report.job.build import BuiltReport, build_report, report_files, write_report
from trainguard.rules.registry import RULE_NAMES

PLACE = ProfileRoot("", JOB).report
MANAGED = {f"profiler-reports/{rule}.json" for rule in RULE_NAMES}
STATE_REPORT = state_report()
JSON, HTML = "application/json", "text/html; charset=utf-8"


@pytest.fixture(scope="module")
def network() -> Network:
    """Return a world in which a job of two nodes is evaluated, but for its last minutes."""
    delivered = Network()
    seen = uploads()[:-10]
    for upload in seen:
        delivered.put(upload)
        delivered.announce(upload, upload.at)
    delivered.run_until(seen[-1].at + 60.0, batch_s=30.0)
    delivered.run_scheduler()
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


def built(network: Network) -> BuiltReport:
    job = network.job()
    return build_report(job, items_of(job, network.world.nodes), now=network.now)


def write(network: Network) -> int:
    return write_report(network.world.objects, network.job(), built(network))


def break_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Report) -> str:
        raise ZeroDivisionError("no ticks")

    monkeypatch.setattr(render, "render_report", fail)


def test_page_is_written_first_and_the_document_last(network: Network, puts: dict[str, tuple[bytes, str]]) -> None:
    puts.clear()
    assert write(network) == len(RULE_NAMES) + 2
    assert set(list(puts)[:-2]) == MANAGED
    assert list(puts)[-2:] == ["report.html", "report.json"]
    assert {name: kind for name, (_, kind) in puts.items()} == dict.fromkeys(puts, JSON) | {"report.html": HTML}
    assert puts["report.html"][0].lower().startswith(b"<!doctype html>")


def test_failed_page_is_named_and_everything_else_is_written(
    network: Network, puts: dict[str, tuple[bytes, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    puts.clear()
    break_page(monkeypatch)
    with pytest.raises(ReportPageError, match=f"report.html of job '{JOB}' cannot be made: ZeroDivisionError: no tic"):
        write(network)
    assert set(puts) == MANAGED | {"report.json"}
    assert list(puts)[-1] == "report.json"
    assert json.loads(puts["report.json"][0])["fired"] == ["LowGPUUtilization", "StepOutlier"]


def test_report_without_a_page_renders_nothing(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    break_page(monkeypatch)
    assert set(report_files(built(network), page=False)) == MANAGED | {"report.json"}


def test_crash_leaves_a_document_only_with_all_other_files(
    network: Network, puts: dict[str, tuple[bytes, str]]
) -> None:
    report, job, last = built(network), network.job(), len(RULE_NAMES) + 1
    for calls in (0, last // 2, last - 1, last):
        puts.clear()
        network.world.faults.crash_after(calls)
        with pytest.raises(Crash):
            write_report(network.world.objects, job, report)
        network.world.faults.clear()
        assert "report.json" not in puts or set(puts) == {*MANAGED, "report.html", "report.json"}


def test_encoded_report_reads_back_with_timelines_on_one_line() -> None:
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
def test_any_details_are_encoded_readably_for_every_reader(given_details: dict[str, object]) -> None:
    rule = msgspec.structs.replace(STATE_REPORT.rules[0], details=given_details)
    body = encode_document(msgspec.structs.replace(STATE_REPORT, rules=[rule]))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert set(json.loads(body, parse_constant=refuse)["rules"][0]["details"]) == set(given_details)


def test_report_of_two_nodes_from_state_takes_under_a_second(network: Network) -> None:
    job, items = network.job(), network.world.nodes.of_job(JOB)
    took = []
    for _ in range(3):
        begun = time.process_time()
        report_files(build_report(job, items, now=0.0))
        took.append(time.process_time() - begun)
    assert min(took) < 1.0
