"""What the page shows of each rule."""

from pkgutil import resolve_name
from typing import Any

import pytest

from tests.unit.report_html.markup import Element, PageRead, read_page
from tests.unit.report_html.reports import box, entry, finding, fired, low_gpu, report
from trainguard.render.numbers import NOTHING
from trainguard.render.numbers import share as write_share
from trainguard.render.rule_entry import RuleEntry
from trainguard.report.html.render import render_report
from trainguard.rules.registry import RULE_NAMES, SPECS

RATHER_MANY = 128


def rendered(*rules: RuleEntry) -> PageRead:
    return read_page(render_report(report(*rules)))


def section(page: PageRead, rule: str) -> str:
    return " ".join(page.by_id[f"rule-{rule}"].text.split())


def drawn(page: PageRead, kind: str) -> list[Element]:
    return [each for each in page.elements if kind in each.attributes.get("class", "").split()]


def test_every_rule_but_the_report_has_one_section() -> None:
    assert {rule for rule, spec in SPECS.items() if spec.section is not None} == set(RULE_NAMES)
    assert all(callable(resolve_name(spec.section)) for spec in SPECS.values() if spec.section is not None)


@pytest.mark.parametrize("rule", RULE_NAMES)
def test_details_of_another_shape_are_listed(rule: str) -> None:
    page = rendered(fired(rule, {"algo-1": {"gpus": [1, 2, 3], "what": {"is": "new"}, "level": 12.5}}))
    text = section(page, rule)
    listed = "algo-1 / what / is" in text or rule in {"OverallFrameworkMetrics", "StepOutlier", "LoadBalancing"}
    assert listed, text
    assert "Raise the batch size." in text


def test_box_of_a_low_gpu_has_its_quantiles_and_both_thresholds() -> None:
    page = rendered(fired("LowGPUUtilization", low_gpu(1, 1)))
    boxes = [each for each in drawn(page, "box") if each.attributes["width"] != "16"]
    assert [(each.attributes["x"], each.attributes["width"]) for each in boxes] == [("17%", "8%")]
    limits = {each.attributes["x1"] for each in drawn(page, "limit") if each.attributes["x1"].endswith("%")}
    assert limits == {"10%", "70%"}
    marks = [each.attributes["cx"] for each in drawn(page, "mark") if each.attributes["cx"].endswith("%")]
    assert marks == ["31%", "14%"]
    assert "gpu0 21 % 31 % 14 % under-used" in section(page, "LowGPUUtilization")
    assert "Never used on algo-1: gpu9." in section(page, "LowGPUUtilization")


def test_worst_nodes_are_shown_in_full_and_others_in_a_table() -> None:
    page = rendered(fired("LowGPUUtilization", low_gpu(RATHER_MANY, 2), worst="algo-77/gpu1"))
    text = section(page, "LowGPUUtilization")
    assert text.index("algo-77 / gpu0") < text.index("algo-60 / gpu0") < text.index("algo-120 / gpu0")
    assert "120 more nodes" in text
    assert len(drawn(page, "strip")) == 8 * 2
    folded = next(each for each in page.of("table") if "120 more nodes" in each.text)
    assert folded.text.count("algo-") == 120


def test_batch_size_has_own_thresholds_for_cpu_gpus_and_memory() -> None:
    details = {
        "algo-1": {
            "cpu": box(20, window_p95=33.0),
            "gpu0": box(30, window_p95=40.0),
            "gpu0_memory": box(50, window_p95=60.0),
            "memory_note": "Activity, not use.",
            "last_timestamp": 1,
        }
    }
    parameters = {"cpu_threshold_p95": 60.0, "gpu_threshold_p95": 70.0, "gpu_memory_threshold_p95": 80.0}
    text = section(rendered(fired("BatchSize", details, parameters=parameters)), "BatchSize")
    assert "CPU 20 % 33 % 60 % gpu0" in text
    assert "gpu0 30 % 40 % 70 %" in text
    assert "gpu0 memory 50 % 60 % 80 %" in text
    assert "Activity, not use." in text


def test_gpu_distances_go_both_ways_and_the_slow_gpu_is_marked() -> None:
    bins = {"gpu0": [0] * 40 + [9] + [0] * 10, "gpu1": [0, 5] + [0] * 49, "gpu2": [0] * 40 + [7] + [0] * 10}
    distances = {"gpu0": {"gpu1": 0.8}, "gpu1": {"gpu2": 0.7}}
    node = {"workloads": bins, "distances": distances, "means": {"gpu0": 81.0, "gpu1": 3.0, "gpu2": 80.0}}
    page = rendered(fired("LoadBalancing", {"*": {}, "algo-1": node}, parameters={"threshold": 0.5}))
    text = section(page, "LoadBalancing")
    assert "gpu1 3 % 0.80" in text
    assert f"gpu0 {NOTHING} 0.80 · gpu1 0.80 {NOTHING} 0.70 gpu2 · 0.70 {NOTHING}" in text
    tones = [each.attributes["class"] for each in drawn(page, "bin") if each.attributes["x"].endswith("%")]
    assert tones == ["bin plain", "bin hot", "bin plain"]


def test_distances_of_the_worst_node_are_open_and_others_folded() -> None:
    means = {"gpu0": 81.0, "gpu1": 3.0, "gpu2": 80.0}
    nodes = {f"algo-{node}": {"means": means, "distances": {"gpu0": {"gpu1": 0.5 + node / 100}}} for node in (1, 2, 3)}
    page = rendered(fired("LoadBalancing", nodes, parameters={"threshold": 0.5}))
    folded = next(each.text for each in drawn(page, "folded"))
    assert "Distances of 2 more nodes" in folded
    assert "Distances of the GPUs of algo-3" in section(page, "LoadBalancing").replace(folded, "")
    assert ("of algo-1" in folded, "of algo-2" in folded, "of algo-3" in folded) == (True, True, False)


def test_minutes_with_and_without_bottlenecks_are_paired() -> None:
    def share(kind: str, hit: float, clean: float) -> dict[str, Any]:
        return {kind: f"the {kind}", "with_bottlenecks_percent": hit, "without_percent": clean}

    framework = {
        "minutes_with_bottlenecks": 3,
        "minutes_without": 5,
        "classes": [share("class", 60.0, 20.0)],
        "phases": [share("phase", 40.0, 10.0)],
    }
    node = {
        "judged": 200,
        "bottlenecked": 140,
        "share_percent": 70.0,
        "recent_judged": 100,
        "recent_share_percent": 80.0,
        "low_gpu_utilization": 150,
        "bottlenecks": [{"time": 1_700_000_000.0, "gpus_low": 2, "io_wait_max": 77.0}],
        "framework": framework,
    }
    page = rendered(fired("IOBottleneck", {"algo-1": node}))
    text = section(page, "IOBottleneck")
    assert "algo-1 70 % 80 % 75 % 200" in text
    assert "Class of events, 3 clock minutes with bottlenecks against 5 without" in text
    assert "the phase 40 % 10 %" in text
    assert "2023-11-14 22:13:20 2 77 %" in text
    assert [each.attributes["width"] for each in drawn(page, "hot") if each.attributes["width"].endswith("%")] == [
        "70%",
        "100%",
        "100%",
    ]


NO_SLOW_STEPS = {
    "slow_steps": [],
    "framework": {"slow_steps_s": 0.0, "ordinary_steps_s": 120.0, "events": []},
    **dict.fromkeys(("series_judged", "series_not_judged", "steps_not_judged"), 1),
}


def test_histogram_of_identical_steps_is_drawn() -> None:
    stats = dict.fromkeys(("mean", "max", "p99", "p95", "p50", "min"), 0.4)
    series = {
        "process": "algo-1-905",
        "mode": "Step:ModeKeys.TRAIN",
        "steps": 300,
        "steps_left_out": 100,
        "short_steps": 0,
        "step_stats": stats,
        "stddev": 0.0,
        "number_of_outliers": 0,
        "plausible_outliers": 10,
        "slow_share_percent": 0.0,
        "fired": False,
        "histogram": {"lower_us": [400_000], "upper_us": [400_000], "counts": [300]},
    }
    page = rendered(entry("StepOutlier", {"algo-1": {"series": [series], **NO_SLOW_STEPS}}, parameters={"stddev": 5.0}))
    assert "Durations of 300 steps: algo-1-905 TRAIN" in section(page, "StepOutlier")
    assert len([each for each in drawn(page, "chart") if each.tag == "svg"]) == 1
    assert all("nan" not in each.attributes.values() for each in page.elements)


def test_step_threshold_is_where_its_parameter_puts_it() -> None:
    stats = {"mean": 0.4, "max": 0.9, "p99": 0.5, "p95": 0.45, "p50": 0.39, "min": 0.3}
    histogram = {"lower_us": [300_000, 890_000], "upper_us": [309_000, 900_000], "counts": [299, 1]}
    series = {
        "process": "p",
        "mode": "TRAIN",
        "steps": 300,
        "steps_left_out": 100,
        "short_steps": 0,
        "step_stats": stats,
        "stddev": 0.05,
        "fired": True,
        "number_of_outliers": 12,
        "plausible_outliers": 10,
        "slow_share_percent": 7.0,
        "histogram": histogram,
    }
    page = rendered(fired("StepOutlier", {"algo-1": {"series": [series], **NO_SLOW_STEPS}}, parameters={"stddev": 5.0}))
    assert "p TRAIN 400 ms 50 ms 300 ms 390 ms 450 ms 500 ms 900 ms" in section(page, "StepOutlier")
    assert "p TRAIN 300 12 10 7 %" in section(page, "StepOutlier")
    assert {"mean 400 ms", "threshold 650 ms"} <= {each.text for each in drawn(page, "limit-label")}


def test_initialization_bar_is_in_minutes_as_the_threshold() -> None:
    details = {"initialization_s": 1_500.0, "step_seen": True}
    page = rendered(fired("MaxInitializationTime", details, parameters={"threshold": 20.0}))
    assert "until the first step 25 min" in section(page, "MaxInitializationTime")
    assert [each.attributes["width"] for each in drawn(page, "bar")] == ["100%"]
    assert [each.attributes["x1"] for each in drawn(page, "limit")] == ["80%"]


def test_framework_shares_and_times_are_side_by_side() -> None:
    operators = {f"aten::op{number}": 10.0 - 0.5 * number for number in range(14)}
    details = {
        "processes": 1,
        "ratio": {"cpu_functions": 100.0},
        "phase": {"Step:ModeKeys.TRAIN": 75.0, "others": 25.0},
        "phase_time": {"Step:ModeKeys.TRAIN": 1_061_000_000, "others": 66_300_000},
        "CPU": operators,
        "CPU_total": dict.fromkeys(operators, 1_500_000),
    }
    text = section(rendered(entry("OverallFrameworkMetrics", {"algo-1": details})), "OverallFrameworkMetrics")
    assert "TRAIN steps 75 % 17.7 min between steps 25 % 66.3 s" in text
    assert "aten::op0 10 % 1.5 s aten::op1 9.5 % 1.5 s" in text
    assert "2 more take 7.5 % together." in text
    assert "together" not in text.replace("7.5 % together", "")


def test_sum_over_processes_is_not_presented_as_job_time() -> None:
    details = {"processes": 4, "ratio": {}, "phase": {"others": 100.0}, "phase_time": {"others": 66_300_000}}
    text = section(rendered(entry("OverallFrameworkMetrics", {"algo-1": details})), "OverallFrameworkMetrics")
    assert "Share Time, 4 processes together between steps 100 % 66.3 s" in text


def test_percentages_and_bytes_of_usage_have_own_scales() -> None:
    metrics = {
        "GPU": {"min": 10.0, "p50": 20.0, "p95": 30.0, "p99": 40.0, "max": 50.0},
        "Network": {"min": 1e6, "p50": 2e6, "p95": 3e6, "p99": 4e6, "max": 5e6},
    }
    page = rendered(entry("OverallSystemUsage", {"algo-1": metrics}))
    text = section(page, "OverallSystemUsage")
    assert "GPU utilization 10 % 20 % 30 % 40 % 50 %" in text
    assert "network 1 MB/s 2 MB/s 3 MB/s 4 MB/s 5 MB/s" in text
    boxes = [each.attributes for each in drawn(page, "box") if each.attributes["width"].endswith("%")]
    assert [(each["x"], each["width"]) for each in boxes] == [("10%", "20%"), ("20%", "40%")]


def test_loader_bar_is_in_percent_of_the_cores() -> None:
    details = {"algo-1": {"cores": 8, "dataloaders": 24.0, "num_workers": 2, "pin_memory": False}}
    parameters = {"min_threshold": 70.0, "max_threshold": 200.0}
    page = rendered(fired("Dataloader", details, parameters=parameters))
    assert f"algo-1 24 8 {NOTHING} 2 off {NOTHING}" in section(page, "Dataloader")
    assert [(each.attributes["class"], each.attributes["width"]) for each in drawn(page, "bar")] == [
        ("bar hot", "100%")
    ]
    assert {each.text for each in drawn(page, "limit-label")} == {"min 70 %", "max 200 %"}


def test_memory_floors_are_shown_from_lowest_to_newest() -> None:
    grown = box(80.0, increase=19.2, gpu_max=99.0, p05=70.0, kind="jump", floors=[23.0, 21.0, 72.0], floor_s=250.0)
    page = rendered(fired("GPUMemoryIncrease", {"algo-1": {"gpu0": grown}}, parameters={"increase": 10.0}))
    text = section(page, "GPUMemoryIncrease")
    assert "gpu0 21 % 72 % +19.2 jumped" in text
    assert "more than 10 percentage points" in text
    lines = [each for each in page.of("polyline") if "s1" in each.attributes["class"]]
    assert len(lines[0].attributes["points"].split()) == 3


@pytest.mark.parametrize("at", [1e300, 1e15])
def test_impossible_calendar_time_lists_the_details(at: float) -> None:
    counts = dict.fromkeys(("judged", "bottlenecked", "recent_judged", "low_gpu_utilization"), 7)
    shares = {"share_percent": 70.0, "recent_share_percent": 70.0, "bottlenecks": [{"time": at, "gpus_low": 1}]}
    page = rendered(fired("CPUBottleneck", {"algo-1": {**counts, **shares}}))
    assert "algo-1 / share_percent 70" in section(page, "CPUBottleneck")


def test_mismatched_bins_and_counts_list_the_details() -> None:
    histogram = {"lower_us": [1.0, 2.0], "upper_us": [2.0, 3.0], "counts": [1]}
    times = {"p25": 1.0, "p50": 1.0, "p95": 1.0, "count": 1, "histogram": histogram}
    page = rendered(fired("Dataloader", {"algo-1": {"cores": 8, "dataloading_time": times}}))
    assert "algo-1 / dataloading_time / histogram / counts 1 values" in section(page, "Dataloader")


@pytest.mark.parametrize(
    ("final", "ongoing", "told"), [(False, False, "fired, over"), (False, True, "fired"), (True, False, "fired")]
)
def test_badge_of_a_fired_rule_says_if_over_in_a_running_job(final: bool, ongoing: bool, told: str) -> None:
    found = finding("CPUBottleneck", ongoing=ongoing)
    page = render_report(report(fired("CPUBottleneck", status="OK"), findings=[found], final=final))
    badges = [each.text.strip() for each in read_page(page).of("span") if "badge" in each.attributes.get("class", "")]
    assert told in badges
    assert ("fired, over" in badges) is (told == "fired, over")


def test_silent_nodes_are_omitted_without_showing_codes() -> None:
    details = {**low_gpu(2, 1), "algo-3": {}}
    page = render_report(report(fired("LowGPUUtilization", details)))
    section = read_page(page).by_id["rule-LowGPUUtilization"].text
    assert "Utilization of each GPU" in section
    assert "gpus /" not in section
    nothing = render_report(report(entry("CPUBottleneck", {"algo-1": {}})))
    assert read_page(nothing).by_id["rule-CPUBottleneck"].tag == "tr"


def test_histogram_quantiles_lie_within_shortest_and_longest() -> None:
    stats = {"mean": 1.9, "max": 1.9, "p99": 1.91, "p95": 1.91, "p50": 1.87, "min": 1.88}
    series = {
        "process": "p",
        "mode": "TRAIN",
        "steps": 400,
        "steps_left_out": 100,
        "short_steps": 0,
        "step_stats": stats,
        "stddev": 0.001,
        "fired": False,
        "number_of_outliers": 0,
        "plausible_outliers": 10,
        "slow_share_percent": 0.0,
        "histogram": {"lower_us": [1_880_000], "upper_us": [1_910_000], "counts": [400]},
    }
    page = rendered(entry("StepOutlier", {"algo-1": {"series": [series], **NO_SLOW_STEPS}}))
    assert "p TRAIN 1.9 s 1 ms 1.88 s 1.88 s 1.9 s 1.9 s 1.9 s" in section(page, "StepOutlier")


def test_hook_codes_are_shown_as_devices_and_modes() -> None:
    shares = {"gpu_functions-dev:3": 60.0, "cpu_functions": 40.0}
    phases = {"Step:ModeKeys.EVAL": 90.0, "others": 10.0}
    node = {"processes": 1, "ratio": shares, "phase": phases, "phase_time": {}}
    page = rendered(entry("OverallFrameworkMetrics", {"algo-1": node}))
    text = section(page, "OverallFrameworkMetrics")
    for alt in ("operators on GPU 3 60 %", "operators on the CPU 40 %", "EVAL steps 90 %", "between steps 10 %"):
        assert alt in text


@pytest.mark.parametrize(
    ("share", "shown"),
    [(1.0, "100 %"), (0.9996, "> 99.9 %"), (0.999, "99.9 %"), (0.0001, "< 0.1 %"), (0.0, "0 %"), (None, NOTHING)],
)
def test_only_all_is_100_percent_and_only_nothing_is_0(share: float | None, shown: str) -> None:
    assert write_share(share) == shown
