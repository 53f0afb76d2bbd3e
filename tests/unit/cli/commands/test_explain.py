"""`trainguard explain`: each status in words with numbers, from rows alone."""

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from docs.site.documents import field_names
from tests.support.small_job import JOB
from tests.unit.cli.seen import NOT_STOPPED, REPORT, Deployed, deployed, job, judged, many_nodes, row
from trainguard.cli.commands.explain.explanation import RuleExplanation, explained
from trainguard.cli.services.names import ALL_RULE_NAMES
from trainguard.core.errors import UnknownNameError
from trainguard.core.finding import Fact, Patience
from trainguard.core.records import JobRecord, RuleRow, Status
from trainguard.rules.low_gpu_utilization.usage import IDLE_TIME, P5
from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.rule_result import Measure
from trainguard.rules.step_outlier.rule import LOST_TIME, OUTLIERS

__all__ = ["deployed"]
LOW = "LowGPUUtilization"
READ_ONCE = "Settings are read once, when a job becomes known: a change holds for the next job."


def as_printed(why: RuleExplanation) -> Any:
    """Return what `--json` has of an explanation, its fields as attributes."""
    document = msgspec.json.encode(why.document(0.0), enc_hook=dict)
    return json.loads(document, object_hook=lambda fields: SimpleNamespace(**fields))


def of_small_job(rule: str, node: str | None = None) -> Any:
    record, rows, _ = judged()
    return as_printed(explained(JOB, record, rows, rule=rule, node=node))


def of_row(stored: RuleRow, record: JobRecord | None = None, others: Sequence[RuleRow] = ()) -> Any:
    record = record or job("job", profiling_interval_ms=500)
    return as_printed(explained("job", record, [stored, *others], rule=stored.rule, node=stored.node))


def test_firing_rule_has_numbers_in_every_part() -> None:
    told = of_small_job("LowGPUUtilization")
    assert told.comparison == "39 % (95th percentile of GPU utilization), threshold 70 %"
    assert told.reason.startswith("1 of 2 nodes fire; worst algo-1")
    assert told.fires_when.startswith("95 % of a GPU's newest points stay below 70 %, or 5 % of them below 10 %")
    assert (told.times_fired, told.violations, told.episodes_ended) == (1, 8, 0)
    assert told.fired_at == "2026-11-21T08:06:50.010Z"
    assert told.advice is not None
    assert told.outlook[0] == "It clears after 5 min of profile in which no evaluation finds its condition."


def test_fire_shows_the_action_taken_and_its_nodes() -> None:
    told = of_small_job("LowGPUUtilization")
    assert told.done is not None
    assert (told.done.action, told.done.alert_id, told.done.report_uri) == (NOT_STOPPED, "f1", REPORT)
    assert [(node.node, node.status, node.measured) for node in told.nodes] == [
        ("algo-1", "FIRED", 39.0),
        ("algo-2", "OK", 98.0),
    ]


def test_tagged_parameters_come_first_with_their_tag() -> None:
    parameters = of_small_job("LowGPUUtilization").parameters
    assert [(each.name, each.value, each.default, each.changed, each.source) for each in parameters[:3]] == [
        ("window", 20, None, True, "tag trainguard:LowGPUUtilization_window"),
        ("patience", 20, None, True, "tag trainguard:LowGPUUtilization_patience"),
        ("threshold_p95", 70.0, 70.0, False, "default"),
    ]
    assert parameters[-1].name == "scan_interval_us"


def test_warming_rule_says_how_much_is_missing_and_how_long() -> None:
    told = of_small_job("CPUBottleneck")
    assert told.patience is not None
    assert (told.patience.seen, told.patience.needed, told.patience.left) == (155, 1_000, 846)
    assert told.patience.left_s == 846 * 5.0
    assert told.outlook == ["A verdict needs 846 more points (70.5 min at 5 s); they count while GPUs are in use."]
    assert (told.comparison, told.fired_at, told.done) == (None, None, None)


@pytest.mark.parametrize(
    ("rule", "patience", "left", "left_s", "said"),
    [
        ("LowGPUUtilization", "828/1000", 173, 86.5, "173 more points (86.5 s at 500 ms)"),
        ("LoadBalancing", "327/500", 173, 86.5, "173 more points (86.5 s at 500 ms)"),
        ("GPUMemoryIncrease", "1599/1600", 1, 0.5, "1 more points (0.5 s at 500 ms)"),
        ("Dataloader", "4/10", 7, 7.0, "7 more seconds with loader events."),
        ("StepOutlier", "150/200", 51, None, "51 more steps."),
    ],
)
def test_remaining_patience_is_counted_as_the_rule_counts(
    rule: str, patience: str, left: int, left_s: float | None, said: str
) -> None:
    seen, needed = map(int, patience.split("/"))
    told = of_row(row(rule, Status.WARMING_UP, progress=Patience(seen=seen, needed=needed)))
    assert told.patience is not None
    assert (told.patience.left, told.patience.left_s) == (left, left_s)
    assert said in told.outlook[0]


def test_full_patience_shows_no_negative_number() -> None:
    told = of_row(row("LowGPUUtilization", Status.WARMING_UP, progress=Patience(seen=1200, needed=1000)))
    assert told.patience is not None
    assert told.patience.left == 0
    assert "enough of the newest points" in told.outlook[0]


@pytest.mark.parametrize("status", [Status.OK, Status.FIRED])
def test_a_judged_rule_shows_its_patience_and_window(deployed: Deployed, status: Status) -> None:
    progress = Patience(
        seen=1200, needed=1000, streak=132, window_points=500, window_start=0.0, window_end=3_600.0, counts="points"
    )
    judged_row = row("LowGPUUtilization", status, progress=progress)
    told = of_row(judged_row).patience
    assert told is not None
    assert (told.seen, told.needed, told.left, told.streak, told.window_points) == (1_000, 1_000, 0, 132, 500)
    deployed.add(job("counted"), [judged_row])
    text = " ".join(deployed.run("explain", "counted", "low").stdout.split())
    assert "1,000 of 1,000 points; the condition held for 132 in a row; the window has 500 points, 1970-01-01" in text


def test_a_rule_without_patience_shows_none() -> None:
    assert of_row(row("LowGPUUtilization")).patience is None


def test_facts_are_a_table_with_units_and_times(deployed: Deployed) -> None:
    facts = (
        Fact(name="mean_utilization", value=41.23, unit="%", series="GPUUtilization", node="algo-1", device="gpu3"),
        Fact(name="idle_time", value=0.25, unit="share", start=0.0, end=3_600.0, threshold=0.2),
    )
    deployed.add(job("told"), [row("LowGPUUtilization", Status.FIRED, facts=facts)])
    lines = [" ".join(line.split()) for line in deployed.shown("explain", "told", "low", columns=200).splitlines()]
    assert "mean_utilization 41.2 % GPUUtilization algo-1/gpu3" in lines
    assert "idle_time 25 % 20 % 1970-01-01 00:00 to 01:00 UTC" in lines
    document = json.loads(deployed.run("explain", "told", "low", "--json").stdout)
    assert [each["name"] for each in document["facts"]] == ["mean_utilization", "idle_time"]


def test_ended_job_promises_nothing() -> None:
    ended = job("job", active=False)
    told = of_row(row("LowGPUUtilization", Status.WARMING_UP, progress=Patience(seen=1, needed=1000)), ended)
    assert told.outlook == ["The job has ended: this verdict is final."]
    assert told.patience is not None
    assert told.patience.left_s is None


@pytest.mark.parametrize(
    ("stored", "meaning", "outlook"),
    [
        (row("BatchSize"), "Its condition does not hold", "It fires once its condition holds"),
        (
            row("BatchSize", times_fired=1),
            "It has fired, and its condition no longer holds",
            "It fires once its condition holds",
        ),
        (row("BatchSize", Status.WAITING_FOR_DATA), "There is no data for it yet", "waits for system metrics"),
        (row("StepOutlier", Status.WAITING_FOR_DATA), "There is no data for it yet", "waits for framework events"),
        (row("StepOutlier", Status.NOT_APPLICABLE), "It does not apply", "framework metrics"),
        (row("BatchSize", Status.ERROR), "or it failed", "is not run there again"),
        (row("OverallSystemUsage"), "does not hold", "It never fires: it sums up."),
        (row("ProfilerReport", Status.FIRED), "Its condition holds", "episodes of all rules have ended"),
        (row("StepOutlier", Status.FIRED), "Its condition holds", "It clears after 90 min of profile"),
    ],
)
def test_every_status_has_its_meaning_and_what_comes_next(stored: RuleRow, meaning: str, outlook: str) -> None:
    told = of_row(stored)
    assert meaning in told.meaning
    assert outlook in told.outlook[0]


def test_inapplicable_gpu_rule_promises_no_help_from_a_tag() -> None:
    assert of_row(row("BatchSize", Status.NOT_APPLICABLE)).outlook == []
    expecting = job("job", framework_expected=True)
    assert of_row(row("Dataloader", Status.NOT_APPLICABLE), expecting).outlook == []


def test_faulty_setting_shows_its_tag_and_a_valid_value() -> None:
    record = job("job", rule_settings={"batchsize_PATIENCE": "many"})
    told = of_row(row("BatchSize", Status.ERROR), record)
    assert told.outlook == [
        "Set trainguard:batchsize_PATIENCE to a whole number from 0 or None, or remove it.",
        READ_ONCE,
    ]
    assert "cpu_threshold_p95 % of CPU" in told.fires_when
    assert told.parameters == []


def test_rule_disabled_by_another_invoked_rule_names_the_tag() -> None:
    record = job("job", rule_settings={"rule_to_invoke": "StepOutlier"})
    told = of_row(row("BatchSize", Status.DISABLED), record)
    assert told.outlook == ["It runs where the tag trainguard:rule_to_invoke is not set.", READ_ONCE]


def test_points_replaced_by_seconds_are_marked() -> None:
    record = job("job", rule_settings={"BatchSize_patience_s": "60"})
    sources = {each.name: (each.source, each.changed) for each in of_row(row("BatchSize"), record).parameters}
    assert sources["patience"] == ("replaced by patience_s", False)
    assert sources["patience_s"] == ("tag trainguard:BatchSize_patience_s", True)


def test_settings_of_a_replay_are_not_tags() -> None:
    record = replace(job("job@replay-1"), rule_settings={"BatchSize_patience": "60"})
    told = explained("job@replay-1", record, [row("BatchSize")], rule="BatchSize", node=None)
    assert told.parameters[0].source == "setting BatchSize_patience"


@pytest.mark.parametrize(
    ("rule", "measure", "measured", "threshold", "said"),
    [
        (LOW, P5, 4.0, 10.0, "4 % (5th percentile of GPU utilization), threshold 10 %"),
        (LOW, IDLE_TIME, 31.5, 20.0, "31.5 min (time without a GPU in use), threshold 20 min"),
        ("StepOutlier", LOST_TIME, 16.7, 10.0, "16.7 % (time lost in slow steps), threshold 10 %"),
        ("StepOutlier", OUTLIERS, 11.0, 10.0, "11 steps (beyond the limit), threshold 10 steps"),
        ("StepOutlier", None, 11.0, 10.0, "11, threshold 10"),
        ("Dataloader", None, 75.0, 70.0, "75, threshold 70"),
        ("LoadBalancing", None, 0.5, 0.5, "0.5, threshold 0.5"),
        ("LoadBalancing", None, 0.31, 0.5, "0.31, threshold 0.5"),
        ("ProfilerReport", None, 2.0, None, "2 (rules that have fired)"),
    ],
)
def test_row_with_measure_text_or_older_version_guesses_no_unit(
    rule: str, measure: Measure | None, measured: float, threshold: float | None, said: str
) -> None:
    told: dict[str, Any] = {} if measure is None else {"quantity": measure.what, "unit": measure.unit}
    assert of_row(row(rule, measured=measured, threshold=threshold, **told)).comparison == said


def test_node_row_is_shown_with_the_fire_of_the_job() -> None:
    told = of_small_job("LowGPUUtilization", "algo-1")
    assert (told.node, told.worst, told.nodes) == ("algo-1", "gpu0", [])
    assert told.done is not None


@pytest.mark.parametrize(
    ("rule", "said"),
    [("LowGPUUtilization", "perhaps you mean algo-2 or algo-1"), ("MaxInitializationTime", "judges as a whole")],
)
def test_unknown_node_names_the_existing_ones(rule: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        of_small_job(rule, "algo-9")


@pytest.mark.parametrize("rule", ALL_RULE_NAMES)
def test_rule_without_a_row_waits_and_shows_all_parameters(rule: str) -> None:
    told = as_printed(explained("job", job("job"), [], rule=rule, node=None))
    assert told.status == Status.WAITING_FOR_DATA
    assert told.reason == "No profile object of the job was read yet."
    assert {each.name for each in told.parameters} == set(PARAMETERS_TYPES[rule].__struct_fields__)
    assert "{" not in told.fires_when


def test_rule_of_another_family_has_its_end_and_setting_source() -> None:
    record = job("job", rule_settings={"ClassImbalance_samples": "7", "DeadRelu_threshold_layer": "500"})
    fired = of_row(row("training/ClassImbalance", Status.FIRED), record)
    assert fired.outlook[0] == "It clears at the first evaluation that does not find its condition."
    assert fired.parameters[0].source == "tag trainguard:ClassImbalance_samples"
    assert of_row(row("kernels/GpuGap", Status.FIRED)).outlook[0] == fired.outlook[0]
    assert of_row(row("training/ClassImbalance", Status.WARMING_UP), record).outlook == ["A verdict needs more steps."]
    told = of_row(row("training/DeadRelu", Status.ERROR), record)
    assert "Set trainguard:DeadRelu_threshold_layer to a number from 0 to 100" in told.outlook[0]


def test_rule_that_is_not_selected_is_shown_as_not_running(deployed: Deployed) -> None:
    result = deployed.run("explain", JOB, "classimb")
    assert result.exit_code == 0
    assert "the job's owner did not choose it" in result.stdout
    assert "It runs where trainguard:training-rules names it" in result.stdout
    assert "--rules-package" not in result.stderr


@pytest.mark.parametrize("word", ["LowGPUUtilization", "lowgpuutilization", "low", " LOWGPU "])
def test_rule_is_found_in_any_case_or_shortened(deployed: Deployed, word: str) -> None:
    result = deployed.run("explain", JOB, word, "--json")
    assert (result.exit_code, json.loads(result.stdout)["rule"]) == (0, "LowGPUUtilization")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("overall", "perhaps you mean OverallSystemUsage or OverallFrameworkMetrics"),
        ("GPUUtil", "perhaps you mean LowGPUUtilization"),
        ("", "there is no rule ''"),
    ],
)
def test_ambiguous_or_unknown_word_suggests_the_nearest_rules(deployed: Deployed, word: str, said: str) -> None:
    result = deployed.run("explain", JOB, word)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_json_document_has_its_version_first(deployed: Deployed) -> None:
    document: dict[str, Any] = json.loads(deployed.run("explain", JOB, "low", "--node", "algo-2", "--json").stdout)
    assert next(iter(document)) == "schema_version"
    assert set(document) == set(field_names("explain", "explain"))
    assert document["node"] == "algo-2"


@pytest.mark.parametrize("columns", [80, 140])
def test_terminal_has_every_section_and_no_line_too_wide(deployed: Deployed, columns: int) -> None:
    text = deployed.shown("explain", JOB, "low", columns=columns)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(len(line) for line in lines) <= columns
    sections = ["Why", "Nodes (2: 1 FIRED, 1 OK)", "What was done", "What to do", "What comes", "Parameters"]
    assert [line for line in lines if line in sections] == sections
    assert "once, last at 2026-11-21 08:06:50Z" in " ".join(text.split())


def test_worst_of_128_nodes_are_shown_and_the_rest_counted(deployed: Deployed) -> None:
    nodes = many_nodes("BatchSize", 128, lambda number: Status.FIRED if number == 100 else Status.OK)
    deployed.add(job("wide"), [row("BatchSize", Status.FIRED, times_fired=1, fired_at=1.0), *nodes])
    text = deployed.shown("explain", "wide", "batch", columns=100)
    assert "Nodes (128: 1 FIRED, 127 OK)" in text
    assert "… and 120 nodes more" in text
    shown = [line.split()[0] for line in text.splitlines() if line.startswith("algo-")]
    assert (shown[0], len(shown)) == ("algo-100", 8)


def test_fire_without_a_recorded_outcome_says_so(deployed: Deployed) -> None:
    fresh = replace(row("BatchSize", Status.FIRED, times_fired=1), fire_id="f")
    failed = replace(row("StepOutlier", Status.FIRED, times_fired=1), fire_id="g", action="alert failed", action_at=1.0)
    deployed.add(job("fresh"), [fresh, failed])
    assert "no outcome is recorded yet" in deployed.run("explain", "fresh", "batch").stdout
    assert "No alert was delivered" in deployed.run("explain", "fresh", "step").stdout
