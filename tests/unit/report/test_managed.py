"""The parameters' text of the five-field reports: read by position, so each has its place."""

import pytest

from trainguard.debugger_replay.parameters import resolve_compatible_parameters
from trainguard.debugger_replay.rules import RULES
from trainguard.engine.outbox.rows import parameters_shown
from trainguard.families.installed import FAMILIES
from trainguard.records import JobRecord
from trainguard.report.managed import parameters_text


def text_of(rule: str, **settings: str) -> str:
    plan = FAMILIES.plan(
        JobRecord("job", "arn", "bucket", "", rule_settings={f"{rule}_{k}": v for k, v in settings.items()})
    )
    return parameters_text(rule, parameters_shown(plan, rule))


@pytest.mark.parametrize("rule", [each.name for each in RULES])
def test_given_documented_defaults_when_shown_then_the_managed_parameters_come_first_as_the_managed_service_shows_them(
    rule: str,
) -> None:
    original = next(each for each in RULES if each.name == rule)
    parameters = resolve_compatible_parameters({}, documented=True)[rule]
    shown = original(parameters, 0).report()["RuleParameters"]
    assert f"{text_of(rule)}\n".startswith(f"{shown}\n" if shown else "")


def test_given_parameters_that_are_added_here_when_set_then_they_follow() -> None:
    shown = text_of("LowGPUUtilization", threshold_p95="70.5", patience="90", scan_interval_us="60000000")
    assert shown == "threshold_p95:70.5\nthreshold_p5:10\nwindow:500\npatience:90\nthreshold_sm:20\nthreshold_memory:10"
    assert text_of("CPUBottleneck").endswith("patience:100\ngpu_fraction:0.5")


def test_given_seconds_when_shown_then_they_are_the_points_of_the_managed_services_sampling() -> None:
    shown = text_of("LowGPUUtilization", patience_s="90", window_s="60")
    assert shown == "threshold_p95:70\nthreshold_p5:10\nwindow:120\npatience:180\nthreshold_sm:20\nthreshold_memory:10"


def test_given_a_rule_whose_configuration_is_at_fault_when_shown_then_there_is_nothing_to_show() -> None:
    assert text_of("LowGPUUtilization", threshold_p95="700") == ""
