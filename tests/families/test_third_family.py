"""A family that the product does not have, from an S3 object to a fire, an alert and a report, on the in-memory world.

Its files are in ``pulse/``; ``FAMILIES`` below is its one line of registration.
"""

import json
import re

import pytest

from tests.families.pulse.family import PulseFamily
from tests.families.pulse.keys import pulse_key
from tests.support.delivery import Network
from tests.support.small_job import BUCKET, JOB, Upload
from tests.support.small_job import uploads as profile_uploads
from trainguard.core.layout import ProfileRoot
from trainguard.core.records import Status, StreamKey
from trainguard.engine.family import Families
from trainguard.engine.profiler.family import PROFILER
from trainguard.engine.streams.session import items_of
from trainguard.report.html.render import render_report
from trainguard.report.job.build import BuiltReport, build_report
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest

FAMILIES = Families(PROFILER, PulseFamily())

RULE = "pulse/FastPulse"
ROOT = ProfileRoot("", JOB)
START = profile_uploads()[0].at


def beat(step: int, rate: float, worker: str = "worker-0") -> Upload:
    at = START + 10.0 * step
    body = json.dumps({"at": at, "rate": rate}).encode()
    return Upload(at, pulse_key(ROOT, worker, step), body)


def network(*beats: Upload) -> Network:
    """Return a world that has met the objects one after another."""
    met = Network(families=FAMILIES)
    for upload in beats:
        arrive(met, upload)
    return met


def arrive(met: Network, upload: Upload) -> None:
    met.put(upload)
    met.announce(upload, upload.at + 1.0)
    met.run_until(upload.at + 2.0, batch_s=0.0)


def report_of(met: Network) -> BuiltReport:
    job = met.job()
    return build_report(job, items_of(job, met.world.nodes), now=met.now, families=FAMILIES)


def test_fast_pulse_fires_once_with_its_row() -> None:
    met = network(*(beat(step, 60.0) for step in range(4)), beat(4, 140.0), beat(5, 150.0))
    fires = [each for each in met.world.executions.started.values() if each["kind"] == "fire"]
    assert [(fire["rule"], fire["node"], fire["measured"]) for fire in fires] == [(RULE, "worker-0", 140.0)]
    rows = {row.target: row for row in met.world.rows.of_job(JOB)}
    assert rows[f"{RULE}#worker-0"].status is Status.FIRED
    assert rows[f"{RULE}#worker-0"].finding.reason == "The pulse is 140."


@pytest.mark.parametrize(("rate", "status"), [(100.0, Status.OK), (100.1, Status.FIRED)])
def test_pulse_fires_only_above_the_threshold(rate: float, status: Status) -> None:
    met = network(*(beat(step, rate) for step in range(5)))
    rows = {row.target: row.status for row in met.world.rows.of_job(JOB)}
    assert rows[f"{RULE}#worker-0"] is status


def test_execution_name_of_a_fire_is_valid_in_step_functions() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    (name,) = met.world.executions.started
    assert re.fullmatch(r"pulse-FastPulse-[A-Za-z0-9_-]{1,60}", name)


def test_alert_of_a_fire_names_rule_and_worker() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    (fire,) = met.world.executions.started.values()
    request = AlertRequest.read({"fire": fire})
    alert = compose_alert(request, now=met.now)
    assert RULE in alert.subject
    assert "The pulse is 140." in alert.text
    assert "worker-0" in alert.text


def test_unordered_or_lost_objects_give_the_same_state() -> None:
    beats = [beat(step, 60.0 + 15.0 * step) for step in range(6)]
    in_order = network(*beats)
    shuffled = Network(families=FAMILIES)
    for upload in beats:
        shuffled.put(upload)
    for place, upload in enumerate([beats[0], beats[3], beats[1], beats[5], beats[4]]):  # nobody announces the third
        shuffled.announce(upload, beats[-1].at + place)
    shuffled.run_until(beats[-1].at + 60.0, batch_s=0.0)
    key = StreamKey(JOB, "worker-0", "pulse")
    assert shuffled.node(key).state == in_order.node(key).state
    assert shuffled.node(key).cursors == in_order.node(key).cursors


def test_scheduler_writes_rows_of_two_families() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    for upload in profile_uploads()[:4]:
        arrive(met, upload)
    met.run_scheduler()
    rows = {row.target: row for row in met.world.rows.of_job(JOB)}
    assert rows[RULE].status is Status.FIRED
    assert rows[RULE].worst == "worker-0"
    assert "LowGPUUtilization" in rows
    assert rows["ProfilerReport"].status is Status.FIRED


def test_report_has_entry_and_section_of_a_fired_rule() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    report = report_of(met).report
    entry = next(each for each in report.rules if each.rule == RULE)
    assert (entry.status, entry.measured) == ("FIRED", 140.0)
    assert report.fired == [RULE]
    assert report.job.data_covered == "The pulse of 1 workers."
    assert [(each.node, each.stream) for each in report.coverage] == [("worker-0", "pulse")]
    page = render_report(report)
    assert RULE in page
    assert "The pulse is 140." in page


def test_unreadable_object_is_counted_and_neighbours_are_used() -> None:
    bad = Upload(START + 10.0, pulse_key(ROOT, "worker-0", 1), b"{")
    large = Upload(START + 20.0, pulse_key(ROOT, "worker-0", 2), b" " * 2_000)
    met = network(beat(0, 140.0), bad, large, beat(3, 140.0), beat(4, 140.0))
    record = met.node(StreamKey(JOB, "worker-0", "pulse"))
    assert record.counters["bad_objects"] == 2
    assert record.watermark_s == beat(4, 0.0).at


def test_deployment_without_the_family_ignores_its_objects() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    older = Network(world=met.world, now=met.now)
    arrive(older, beat(5, 140.0))
    assert [each.what for each in older.world.journal.entries if each.what == "foreign_keys"] == ["foreign_keys"]
    for upload in profile_uploads()[:4]:
        arrive(older, upload)
    older.run_scheduler()
    rows = {row.target: row for row in older.world.rows.of_job(JOB)}
    assert rows["LowGPUUtilization"].status is not Status.ERROR


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="families"):
        Families(PROFILER, PROFILER)


def test_upload_from_another_bucket_is_not_judged() -> None:
    met = network(beat(0, 140.0))
    assert met.job().bucket == BUCKET
