"""The page of a judged job that has something to show for every rule."""

import json
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.report_html.markup import faults_of, read_page
from tests.unit.report_html.reports import fired, report
from tests.unit.report_html.test_sections import drawn
from trainguard.report.document import Report
from trainguard.report.html.render import render_report
from trainguard.report.html.rule_sections import shown_rules
from trainguard.rules.registry import RULE_NAMES, SPECS


def test_page_of_a_judged_job_is_valid_and_small(judged: Report) -> None:
    page = render_report(judged)
    assert faults_of(page) == []
    assert len(page) < 400_000


# They show tables alone, and have nothing to show of the job here, which no collector has profiled.
IN_TABLES = {"GPUHealth", "HungJob", "Straggler"}


@pytest.mark.parametrize("rule", [rule for rule in RULE_NAMES if rule not in IN_TABLES])
def test_each_rule_of_a_judged_job_has_its_own_plots(judged: Report, rule: str) -> None:
    found = next(each for each in judged.rules if each.rule == rule)
    blocks = resolve_name(str(SPECS[rule].section))(found)
    assert "table" in {block.block for block in blocks}
    page = read_page(render_report(report(found)))
    assert drawn(page, "strip"), "no strip is drawn"
    assert page.by_id[f"rule-{rule}"].tag == "section"


def test_fired_rules_and_overviews_are_open_and_others_folded(
    judged: Report,
) -> None:
    for each in shown_rules(judged):
        entry = each["entry"]
        assert each["is_open"] is (SPECS[entry.rule].informs_only or entry.times_fired > 0)
    assert {each["is_open"] for each in shown_rules(judged)} == {True, False}


@settings(max_examples=30)
@given(st.sampled_from(RULE_NAMES), st.data())
def test_page_of_a_rule_with_any_field_value_is_valid(
    judged_details: dict[str, str], rule: str, data: st.DataObject
) -> None:
    nothing: st.SearchStrategy[Any] = st.sampled_from([None, [], {}])
    odd = nothing | st.floats() | st.integers(-1, 10**18) | st.text(max_size=5)
    details = json.loads(judged_details[rule])
    place: Any = details
    while isinstance(place, dict | list) and place:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(odd)
            break
        place = place[key]
    assert faults_of(render_report(report(fired(rule, details)))) == []


@pytest.fixture(scope="module")
def judged_details(judged: Report) -> dict[str, str]:
    return {each.rule: json.dumps(each.details) for each in judged.rules}


@pytest.mark.parametrize("extreme", [1e308, -1e308, 5e-324, 0.0, pytest.param(10**400, id="beyond")])
def test_page_with_extreme_numbers_is_valid(judged_details: dict[str, str], extreme: float) -> None:
    details = {rule: _with_numbers(json.loads(judged_details[rule]), extreme) for rule in RULE_NAMES}
    assert faults_of(render_report(report(*(fired(rule, each) for rule, each in details.items())))) == []


def _with_numbers(value: Any, number: float) -> Any:
    if isinstance(value, dict):
        return {key: _with_numbers(each, number) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_numbers(each, number) for each in value]
    return number if isinstance(value, int | float) and not isinstance(value, bool) else value
