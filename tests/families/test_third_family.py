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
from trainguard.actions.alert import compose_alert
from trainguard.actions.request import AlertRequest
from trainguard.engine.family import Families
from trainguard.engine.streams.state_items import items_of
from trainguard.families.profiler.family import PROFILER
from trainguard.layout import ProfileRoot
from trainguard.records import Status, StreamKey
from trainguard.report.build import BuiltReport, build_report
from trainguard.report.html.render import render_report

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


def test_given_a_fast_pulse_when_its_objects_arrive_then_the_rule_fires_once_and_its_row_says_so() -> None:
    met = network(*(beat(step, 60.0) for step in range(4)), beat(4, 140.0), beat(5, 150.0))
    fires = [each for each in met.world.executions.started.values() if each["kind"] == "fire"]
    assert [(fire["rule"], fire["node"], fire["measured"]) for fire in fires] == [(RULE, "worker-0", 140.0)]
    rows = {row.target: row for row in met.world.rows.of_job(JOB)}
    assert rows[f"{RULE}#worker-0"].status is Status.FIRED
    assert rows[f"{RULE}#worker-0"].finding.reason == "The pulse is 140."


@pytest.mark.parametrize(("rate", "status"), [(100.0, Status.OK), (100.1, Status.FIRED)])
def test_given_a_pulse_on_the_threshold_when_judged_then_only_more_than_it_fires(rate: float, status: Status) -> None:
    met = network(*(beat(step, rate) for step in range(5)))
    rows = {row.target: row.status for row in met.world.rows.of_job(JOB)}
    assert rows[f"{RULE}#worker-0"] is status


def test_given_a_fire_when_its_execution_is_named_then_the_name_is_one_that_step_functions_takes() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    (name,) = met.world.executions.started
    assert re.fullmatch(r"pulse-FastPulse-[A-Za-z0-9_-]{1,60}", name)


def test_given_a_fire_when_its_alert_is_composed_then_it_names_the_rule_and_the_worker() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    (fire,) = met.world.executions.started.values()
    request = AlertRequest.read({"fire": fire})
    alert = compose_alert(request, now=met.now)
    assert RULE in alert.subject
    assert "The pulse is 140." in alert.text
    assert "worker-0" in alert.text


def test_given_objects_out_of_order_or_lost_when_applied_then_the_state_is_the_same() -> None:
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


def test_given_two_families_when_the_tick_runs_then_the_job_has_rows_of_both() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    for upload in profile_uploads()[:4]:
        arrive(met, upload)
    met.tick()
    rows = {row.target: row for row in met.world.rows.of_job(JOB)}
    assert rows[RULE].status is Status.FIRED
    assert rows[RULE].worst == "worker-0"
    assert "LowGPUUtilization" in rows
    assert rows["ProfilerReport"].status is Status.FIRED


def test_given_a_fire_when_the_report_is_built_then_the_rule_has_its_entry_and_its_section() -> None:
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


def test_given_an_object_that_cannot_be_read_when_applied_then_it_is_counted_and_its_neighbours_are_used() -> None:
    bad = Upload(START + 10.0, pulse_key(ROOT, "worker-0", 1), b"{")
    large = Upload(START + 20.0, pulse_key(ROOT, "worker-0", 2), b" " * 2_000)
    met = network(beat(0, 140.0), bad, large, beat(3, 140.0), beat(4, 140.0))
    record = met.node(StreamKey(JOB, "worker-0", "pulse"))
    assert record.counters["bad_objects"] == 2
    assert record.watermark_s == beat(4, 0.0).at


def test_given_a_deployment_without_the_family_when_its_objects_and_items_are_met_then_neither_harms_the_job() -> None:
    met = network(*(beat(step, 140.0) for step in range(5)))
    older = Network(world=met.world, now=met.now)
    arrive(older, beat(5, 140.0))
    assert [each.what for each in older.world.journal.entries if each.what == "foreign_keys"] == ["foreign_keys"]
    for upload in profile_uploads()[:4]:
        arrive(older, upload)
    older.tick()
    rows = {row.target: row for row in older.world.rows.of_job(JOB)}
    assert rows["LowGPUUtilization"].status is not Status.ERROR


def test_given_two_rules_of_one_name_when_families_are_put_together_then_they_are_refused() -> None:
    with pytest.raises(ValueError, match="families"):
        Families(PROFILER, PROFILER)


def test_given_an_upload_of_another_bucket_when_it_arrives_then_nothing_is_judged() -> None:
    met = network(beat(0, 140.0))
    assert met.job().bucket == BUCKET
