"""Texts of others: shown, shortened, and never run."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.report_samples import hostile_report
from tests.unit.report_html.markup import faults_of, read_page
from tests.unit.report_html.reports import HOSTILE, entry, finding, fired, low_gpu, report
from trainguard.report.html.render import render_report

leaves = st.none() | st.floats() | st.integers() | st.text(max_size=8)
anything = st.recursive(
    leaves,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=8), each, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def hostile() -> str:
    rules = [
        fired(
            "LowGPUUtilization",
            low_gpu(10, 2, name=HOSTILE),
            reason=HOSTILE,
            recommendation=HOSTILE,
            unit=HOSTILE,
            worst=f"algo-1{HOSTILE}",
            parameters={HOSTILE: HOSTILE},
            changed=[HOSTILE],
        ),
        fired(HOSTILE, {HOSTILE: {HOSTILE: HOSTILE}}),
        fired(f"x{HOSTILE}", severity=HOSTILE, status=HOSTILE),
    ]
    findings = [finding("LowGPUUtilization", explained_by=HOSTILE, reason=HOSTILE)]
    return render_report(report(*rules, findings=findings, text=HOSTILE))


def test_markup_in_any_text_is_shown_as_text(hostile: str) -> None:
    page = read_page(hostile)
    assert faults_of(hostile) == []
    assert not page.of("img")
    assert len(page.of("script")) == 1
    assert "<script>window.hacked=1</script><img src=x onerror=alert(1)>" in page.text
    assert "{{7*7}}" in page.text


def test_invisible_characters_are_replaced(hostile: str) -> None:
    unseen = [character for character in "\u202e\x00\x1b" if character in hostile]
    assert not unseen
    assert "\ufffd" in hostile


def test_page_with_the_sample_of_hostile_names_is_valid() -> None:
    assert faults_of(render_report(hostile_report())) == []


def test_endless_names_are_shortened() -> None:
    long = "n" * 10_000
    rules = [fired("LowGPUUtilization", low_gpu(3, 3, name=long), reason=long, recommendation=long)]
    page = render_report(report(*rules, text=long))
    assert long[:1_300] not in page
    assert len(page) < 150_000


@given(st.text(max_size=60), anything)
def test_page_with_any_text_and_details_is_valid(text: str, details: Any) -> None:
    rules = [fired("NewRule", {text: details}, reason=text, worst=text), entry("BatchSize", {"algo-1": details})]
    assert faults_of(render_report(report(*rules, text=text))) == []


def test_two_rules_of_one_unknown_name_have_own_anchors() -> None:
    twice = report(fired("New rule", {"a": 1}), fired("New rule", {"a": 2}))
    assert faults_of(render_report(twice)) == []
