"""When and where: the picture at the head, the episodes of each finding, and one number for each thing."""

import base64
import re
import struct
import zlib

import numpy as np
import pytest
from msgspec.structs import replace

from tests.support.report_samples import (
    bad_report,
    episode,
    finding,
    make_report,
    state_report,
)
from tests.support.timeline_samples import START
from tests.unit.report_html import reports
from tests.unit.report_html.markup import PageRead, faults_of, read_page
from trainguard.core.finding import EpisodeEntry
from trainguard.core.records import Status
from trainguard.engine.streams.rule_runner import LastFinding
from trainguard.engine.verdicts.episodes import StoredEpisode
from trainguard.render.numbers import elapsed
from trainguard.report.document import Report
from trainguard.report.html.episodes import episodes_of, picture_of, place_of, png_url, runs
from trainguard.report.html.render import render_report
from trainguard.report.html.timelines import thresholds_of
from trainguard.rules.rule_result import RuleResult


def words(text: str) -> str:
    return " ".join(text.split())


def page_of(report: Report) -> PageRead:
    return read_page(render_report(report))


def test_verdict_says_where_since_when_how_long_and_the_cost() -> None:
    verdict = words(page_of(bad_report()).by_id["verdict"].text)
    assert "LowGPUUtilization algo-1: gpu3" in verdict
    assert "from 00:10:00 (+0:10:00) 2 episodes, 27 min, USD 18.40" in verdict
    assert "CPUBottleneck whole job from 00:30:18 (+0:30:18) 282 s, USD 18.40" in verdict


def test_episode_has_a_bar_and_a_frame_around_its_node_rows() -> None:
    picture = picture_of(bad_report(), episodes_of(bad_report()))
    assert picture is not None
    (_, lasting), (_, of_cpu) = picture["lanes"]
    starts = [picture["place_of"](each["start"]) for each in lasting]
    assert starts == pytest.approx([100 * 600 / 3_600, 80.0], abs=0.01)
    assert [picture["width_of"](each) for each in lasting] == pytest.approx([25.0, 20.0])
    assert len(of_cpu) == 1
    drawn = re.findall(r'<rect x="([\d.]+)%" width="([\d.]+)%" y="4"', render_report(bad_report()))
    assert [float(width) for _, width in drawn[:2]] == pytest.approx([25.0, 20.0])
    assert picture["heat"] is not None
    frames = [(top, tall) for _, _, top, tall in picture["heat"]["frames"]]
    assert frames == [(22.0, 5.0)] * 2, "the row of gpu3, once for each of its episodes"
    whole = replace(bad_report(), findings=[finding("LowGPUUtilization", [episode(60.0, 90.0, "algo-2")])])
    picture = picture_of(whole, episodes_of(whole))
    assert picture is not None
    assert picture["heat"] is not None
    assert [(top, tall) for _, _, top, tall in picture["heat"]["frames"]] == [(57.0, 54.0)]


def test_findings_beyond_the_lanes_are_counted() -> None:
    more = [finding(f"Rule{number}", [episode(60.0, 120.0)]) for number in range(5)]
    text = words(page_of(replace(bad_report(), findings=more)).by_id["verdict"].text)
    assert "2 more findings" in text


def test_picture_has_cell_shades_and_nothing_for_missing_data() -> None:
    picture = picture_of(bad_report(), {})
    assert picture is not None
    assert picture["heat"] is not None
    (data,) = re.findall(r"base64,([A-Za-z0-9+/=]+)", picture["heat"]["image"])
    body = base64.b64decode(data)
    columns, rows = struct.unpack(">II", body[16:24])
    assert (columns, rows) == (240, 16)
    pixels = decoded(body, rows, columns)
    timelines = bad_report().timelines
    assert timelines is not None
    gpus = [gpu for node in timelines.nodes for gpu in node.gpus]
    for row, bucket in ((0, 100), (3, 60), (15, 200)):
        assert pixels[row, bucket] == pytest.approx(gpus[row].utilization.mean[bucket], abs=0.51)
    assert pixels[12, 120] == 101


def decoded(body: bytes, rows: int, columns: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    start = body.index(b"IDAT")
    (length,) = struct.unpack(">I", body[start - 4 : start])
    lines = np.frombuffer(zlib.decompress(body[start + 4 : start + 4 + length]), np.uint8)
    return lines.reshape(rows, columns + 1)[:, 1:]


def test_every_png_chunk_has_its_checksum() -> None:
    url = png_url(np.array([[0, 1, 9]], np.uint8), [(1, 2, 3), (4, 5, 6)])
    body = base64.b64decode(url.removeprefix("data:image/png;base64,"))
    assert decoded(body, 1, 3).tolist() == [[0, 1, 2]]
    at, names = 8, []
    while at < len(body):
        (length,) = struct.unpack(">I", body[at : at + 4])
        name, held = body[at + 4 : at + 8], body[at + 4 : at + 8 + length]
        (checksum,) = struct.unpack(">I", body[at + 8 + length : at + 12 + length])
        assert zlib.crc32(held) == checksum
        names.append(name.decode())
        at += 12 + length
    assert names == ["IHDR", "PLTE", "tRNS", "IDAT", "IEND"]


def test_finding_section_lists_episodes_and_links_to_timelines() -> None:
    page = page_of(bad_report())
    row = words(page.by_id["episode-2"].text)
    assert row == (
        "2026-07-01 00:48:00 +0:48:00 12 min algo-1: gpu3 31 % USD 3.91 Show the episode of +0:48:00 on the time lines"
    )
    links = [each.attributes for each in page.of("a") if "data-episode" in each.attributes]
    leads = [(each["href"], each["data-episode"]) for each in links]
    assert leads == 2 * [("#timelines", f"episode-{number}") for number in (1, 2, 3)], "bars at the head, then rows"


def test_ongoing_episode_lasts_to_the_newest_data_or_job_end() -> None:
    running = words(page_of(replace(state_report(), final=False)).by_id["episode-2"].text)
    assert "12 min, to the newest data" in running
    assert "12 min, to the end" in words(page_of(replace(state_report(), final=True)).by_id["episode-2"].text)


def test_number_of_earlier_episodes_is_shown_in_the_list() -> None:
    found = replace(finding("LowGPUUtilization", [episode(60.0, 120.0, "algo-1")]), earlier_episodes=7)
    page = page_of(replace(bad_report(), findings=[found]))
    assert "the newest 1 of 8 episodes" in words(page.by_id["rule-LowGPUUtilization"].text)
    assert "8 episodes" in words(page.by_id["verdict"].text)
    row = next(each for each in page.within("table", "tr") if "LowGPUUtilization" in each.text)
    assert " 8 " in f" {words(row.text)} "


def test_recovered_rule_shows_the_finding_and_not_current_values() -> None:
    now = reports.fired("LowGPUUtilization", status="OK", measured=96.0, reason="all is well: 96 %.")
    found = finding("LowGPUUtilization", [episode(60.0, 120.0, "algo-1", measured=34.0)])
    text = words(page_of(reports.report(now, findings=[found], final=True)).text)
    assert "34 %" in text
    assert "96 %" not in text


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("start", [None, START - 90_000.0])
def test_reason_of_an_ended_finding_is_of_its_episodes_alone(closed: bool, start: float | None) -> None:
    low = RuleResult(status=Status.FIRED, reason="gpu0 is at 34 %.")
    last = LastFinding.of(low, at=START, began_at=START - 60.0)
    episode = StoredEpisode(START if start is None else start, START)
    episode.take_in("Rule", low, not_before=0.0)
    healthy = RuleResult(status=Status.OK, reason="gpu0 is at 96 %.")
    over = last.with_result("Rule", healthy, START + 8_640.0, episode, closed=closed)
    assert "96 %" in over.reason
    assert over.found_words.reason == "gpu0 is at 34 %."


def test_page_of_a_finished_job_has_nothing_now_or_ago() -> None:
    text = page_of(bad_report()).by_id["content"].text
    assert re.search(r"\b(now|ago|so far)\b", text, re.IGNORECASE) is None


def test_times_are_machine_readable_and_in_utc() -> None:
    page = page_of(bad_report())
    times = page.of("time")
    assert len(times) > 8
    assert {each.attributes["datetime"][-1] for each in times} == {"Z"}
    assert "made 2026-07-01 01:02:03 UTC" in words(page.of("header")[0].text)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["gpu0", "gpu1", "gpu2", "gpu3", "gpu6"], "gpu0 to gpu3, gpu6"),
        (["gpu0", "gpu1"], "gpu0, gpu1"),
        (["gpu9", "gpu10", "gpu11"], "gpu9 to gpu11"),
        (["x", "y"], "x, y"),
        ([], ""),
    ],
)
def test_consecutive_gpus_are_named_as_a_range(names: list[str], told: str) -> None:
    assert runs(names) == told


@pytest.mark.parametrize(
    ("nodes", "gpus", "told"),
    [
        ([], [], "whole job"),
        (["algo-1"], [], "algo-1"),
        (["algo-1"], ["gpu0", "gpu1", "gpu2"], "algo-1: gpu0 to gpu2"),
        (["algo-1", "algo-2"], ["algo-1/gpu0", "algo-2/gpu3"], "algo-1: gpu0 and algo-2: gpu3"),
        ([f"algo-{each}" for each in range(9)], [], "algo-0, algo-1, algo-2 and 6 more"),
    ],
)
def test_place_of_an_episode_names_nodes_and_gpus(nodes: list[str], gpus: list[str], told: str) -> None:
    node = nodes[0] if len(nodes) == 1 else None
    assert place_of(EpisodeEntry(start="", end=None, node=node, nodes=nodes, gpus=gpus)) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(0.0, "+0:00:00"), (7_510.4, "+2:05:10"), (97_510.0, "+1 d 3:05:10"), (-30.0, "-0:00:30"), (None, "\N{EN DASH}")],
)
def test_time_since_the_start_reads_like_a_clock(seconds: float | None, told: str) -> None:
    assert elapsed(seconds) == told


def test_equal_thresholds_are_one_line_and_idle_rules_have_none() -> None:
    rules = [
        reports.entry("LowGPUUtilization", parameters={"threshold_p95": 70.0, "threshold_p5": 10.0}),
        reports.entry("CPUBottleneck", parameters={"gpu_threshold": 10.0, "cpu_threshold": 90.0}),
        reports.entry("IOBottleneck", status="DISABLED", parameters={"io_threshold": 50.0}),
    ]
    lines = thresholds_of(rules, ["CPUBottleneck"])
    assert lines == [
        ("utilization", 70.0, "LowGPUUtilization: p95", "LowGPUUtilization p95"),
        ("utilization", 10.0, "LowGPUUtilization: p5; CPUBottleneck: a GPU waits", "CPUBottleneck"),
        ("cpu", 90.0, "CPUBottleneck: a core is busy", "CPUBottleneck"),
    ]


def test_unknown_job_time_draws_no_picture() -> None:
    made = make_report("x", ["algo-1"], 1, None, worst="algo-1/gpu0")
    unknown = replace(made, job=replace(made.job, started_at=None, ended_at=None, evaluated_through=None))
    assert faults_of(render_report(unknown)) == []
    assert page_of(unknown).classes["picture"] == 0
