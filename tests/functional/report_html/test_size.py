"""Large jobs: the page stays small enough to be opened, and says what it leaves out."""

from typing import Any

from msgspec.structs import replace

from tests.support.timeline_samples import make_timelines
from tests.unit.report_html.markup import faults_of, read_page
from tests.unit.report_html.reports import box, coverage, fired, low_gpu, report
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.document import Report
from trainguard.report.html.render import render_report
from trainguard.report.timeline.series import Band, axis_for, shown_axis

NODES, GPUS = 128, 8
LIMIT = 1_500_000


def spread_over_nodes(judged: Report) -> list[RuleEntry]:
    """Return the judged job's rules as if its first node had been many."""
    rules = []
    for each in judged.rules:
        details: dict[str, Any] = dict(each.details)
        if "algo-1" in details:
            details |= {f"algo-{number}": details["algo-1"] for number in range(1, NODES + 1)}
        rules.append(fired(each.rule, details, parameters=each.parameters))
    grown = box(80, increase=12.0, gpu_max=99.0, p05=70.0, kind="jump", floors=[50.0] * 24, floor_s=250.0)
    memory = {f"algo-{node}": {f"gpu{gpu}": grown for gpu in range(GPUS)} for node in range(NODES)}
    more = {"LowGPUUtilization": low_gpu(NODES, GPUS), "GPUMemoryIncrease": memory}
    return [fired(rule.rule, more.get(rule.rule, rule.details), parameters=rule.parameters) for rule in rules]


def test_page_of_128_nodes_without_time_lines_is_small(judged: Report) -> None:
    streams = [coverage(f"algo-{node}") for node in range(NODES) for _ in range(2)]
    page = render_report(report(*spread_over_nodes(judged), coverage=streams))
    assert len(page.encode()) < LIMIT
    assert faults_of(page) == []
    assert "120 more nodes" in read_page(page).text


def test_tables_of_thousands_of_nodes_are_cut_and_say_so() -> None:
    streams = [coverage(f"algo-{node}") for node in range(3_000)]
    page = render_report(report(fired("LowGPUUtilization", low_gpu(3_000, 1)), coverage=streams))
    text = read_page(page).text
    assert len(page.encode()) < LIMIT
    assert "In report.json only: 2,480 nodes more." in text
    folded = next(each for each in read_page(page).of("table") if "2,992 more nodes" in each.text)
    assert folded.text.count("algo-") == 512
    assert "2,400 more streams are in report.json." in text


def test_page_of_a_day_of_a_thousand_nodes_can_be_opened() -> None:
    nodes = [f"algo-{number}" for number in range(1, 1_001)]
    axis = shown_axis(axis_for(0.0, 86_400.0, 8_000, 1_000), 8_000, 1_000)
    made = make_timelines(nodes=nodes[:5], gpus=8, buckets=axis.buckets, bucket_s=axis.bucket_s, banded=4)
    last = made.nodes[-1]
    assert last.network is not None
    bare = replace(last, network=Band(mean=last.network.mean))
    told = [*made.nodes[:4], *(replace(bare, node=name) for name in nodes[4:])]
    page = render_report(replace(report(), timelines=replace(made, nodes=told)))
    assert len(page.encode()) < 3_000_000
