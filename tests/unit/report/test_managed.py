"""The parameters' text of the five-field reports: read by position, so each has its place."""

import pytest

from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.outbox import parameters_shown
from trainguard.managed.parameters import RULES, resolve_compatible_parameters
from trainguard.report.job.rule_entries import parameters_text


def text_of(rule: str, **settings: str) -> str:
    plan = FAMILIES.plan(
        JobRecord("job", "arn", "bucket", "", rule_settings={f"{rule}_{k}": v for k, v in settings.items()})
    )
    return parameters_text(rule, parameters_shown(plan, rule))


@pytest.mark.parametrize("rule", [each.name for each in RULES])
def test_managed_parameters_come_first_in_their_managed_form(
    rule: str,
) -> None:
    original = next(each for each in RULES if each.name == rule)
    parameters = resolve_compatible_parameters({}, documented=True)[rule]
    shown = original(parameters, 0).report()["RuleParameters"]
    assert f"{text_of(rule)}\n".startswith(f"{shown}\n" if shown else "")


def test_parameters_added_here_follow_the_managed_ones() -> None:
    shown = text_of("LowGPUUtilization", threshold_p95="70.5", patience="90", scan_interval_us="60000000")
    assert shown == "threshold_p95:70.5\nthreshold_p5:10\nwindow:500\npatience:90\nthreshold_sm:20\nthreshold_memory:10"
    assert text_of("CPUBottleneck").endswith("patience:100\ngpu_fraction:0.5")


def test_seconds_are_shown_as_points_of_the_managed_sampling() -> None:
    shown = text_of("LowGPUUtilization", patience_s="90", window_s="60")
    assert shown == "threshold_p95:70\nthreshold_p5:10\nwindow:120\npatience:180\nthreshold_sm:20\nthreshold_memory:10"


def test_rule_with_a_faulty_configuration_shows_no_parameters() -> None:
    assert text_of("LowGPUUtilization", threshold_p95="700") == ""
