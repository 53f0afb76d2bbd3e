"""``report.json`` of a job with many nodes: bounded, the worst nodes in it, and what is left out counted."""

import json
from dataclasses import replace

import pytest

from tests.support.delivery import Network
from tests.support.small_job import JOB, uploads
from trainguard.core.records import JOB_NODE, JobRecord, StreamKey, StreamRecord
from trainguard.engine.installed import FAMILIES
from trainguard.report.job.build import MOST_NAMES, BuiltReport, build_report, report_files
from trainguard.report.job.rule_entries import NODES_WITH_DETAILS

NODES = 600
LIMIT = 4_000_000


@pytest.fixture(scope="module")
def small_job() -> tuple[JobRecord, list[StreamRecord]]:
    """Return a job of which every object was met, and its nodes' items."""
    network = Network()
    for upload in uploads():
        network.put(upload)
        network.announce(upload, upload.at + 1.0)
    network.run_until(uploads()[-1].at + 10.0, batch_s=20.0)
    return network.job(), [record for record in network.world.nodes.of_job(JOB) if not record.key.is_own]


def of_nodes(small_job: tuple[JobRecord, list[StreamRecord]], nodes: int) -> BuiltReport:
    job, seeds = small_job
    names = sorted({record.key.node for record in seeds})
    records = [
        replace(seed, key=StreamKey(job.job, f"algo-{number}", seed.key.stream))
        for number in range(1, nodes + 1)
        for seed in seeds
        if seed.key.node == names[number % len(names)]
    ]
    job = replace(job, instance_count=nodes)
    return build_report(job, records, now=2e9, plan=FAMILIES.plan(job))


def test_document_of_many_nodes_is_bounded_with_counts(
    small_job: tuple[JobRecord, list[StreamRecord]],
) -> None:
    files = report_files(of_nodes(small_job, NODES))
    assert len(files["report.json"]) < LIMIT
    document = json.loads(files["report.json"])
    by_node = [rule for rule in document["rules"] if rule["nodes_left_out"]]
    assert by_node
    for rule in by_node:
        assert len(rule["details"].keys() - {JOB_NODE}) + rule["nodes_left_out"] == NODES
        assert rule["worst"] is None or rule["worst"].partition("/")[0] in rule["details"]
        whole = json.loads(files[f"profiler-reports/{rule['rule']}.json"])["Details"]
        assert len(whole.keys() - {JOB_NODE}) == NODES
    for finding in document["findings"]:
        assert all(len(each["gpus"]) <= MOST_NAMES and len(each["nodes"]) <= MOST_NAMES for each in finding["episodes"])
    assert max(finding["names_left_out"] for finding in document["findings"]) >= NODES - MOST_NAMES
    assert b"more nodes" in files["report.html"]


def test_given_few_nodes_when_reported_then_nothing_is_left_out(
    small_job: tuple[JobRecord, list[StreamRecord]],
) -> None:
    report = of_nodes(small_job, NODES_WITH_DETAILS).report
    assert all(rule.nodes_left_out == 0 for rule in report.rules)
