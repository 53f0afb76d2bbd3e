"""The pages' tables of parameters, defaults, severities and causes say what the code does."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainguard.debugger_replay.rules import RULES as COMPATIBLE_RULES
from trainguard.engine.verdicts.severity import severity_of
from trainguard.finding import Severity
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import ALL_RULES, SPECS

DOCS = Path(__file__).parents[2] / "docs"
TYPES: dict[str, type[RuleParameters]] = {
    **{rule.name: rule.parameters_type for rule in ALL_RULES},
    PROFILER_REPORT: ReportParameters,
}
ACCEPTED_BY_ALL = "scan_interval_us"
UNKNOWN = "\N{EN DASH}"


def table(page: str, first: str) -> list[list[str]]:
    """Return the cells of the rows below the heading that begins with ``first``."""
    lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
    rows: list[list[str]] = []
    inside = False
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] == first:
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|---"):
            rows.append(cells)
    return rows


def shown(value: Any) -> str:
    """Show a default as the pages do."""
    if value is None or isinstance(value, bool):
        return str(value).lower() if value is not None else UNKNOWN
    return value if isinstance(value, str) else f"{value:,g}" if value < 1_000 else f"{value:,.0f}"


def in_points(values: dict[str, Any]) -> dict[str, Any]:
    """Return patience and window as the points that the managed service has in that time, where they are in seconds."""
    spans = {name: values[f"{name}_s"] for name in ("patience", "window") if values.get(f"{name}_s") is not None}
    # Dataloader's patience is in seconds in both.
    return values | {name: seconds if seconds == 10.0 else seconds * 2.0 for name, seconds in spans.items()}


def on_page(rule: str) -> dict[str, str]:
    """Return the defaults by parameter that a rule's page shows."""
    rows = ((row[0].split(" ")[0].strip("`"), row[1].strip("`")) for row in table(f"rules/{rule}.md", "parameter"))
    return {name: UNKNOWN if default == "None" else default for name, default in rows if not name.startswith("<")}


@pytest.mark.parametrize("rule", TYPES)
def test_given_a_rules_page_when_its_parameters_are_read_then_they_are_the_codes(rule: str) -> None:
    defaults = TYPES[rule]().in_force()
    if rule != PROFILER_REPORT:
        del defaults[ACCEPTED_BY_ALL]
    assert on_page(rule) == {name: shown(value) for name, value in defaults.items()}


def test_given_the_two_sets_of_defaults_when_read_then_they_are_the_codes() -> None:
    expected = {
        f"{rule}_{name}": (shown(TYPES[rule]().in_force()[name]), shown(value))
        for rule, spec in SPECS.items()
        for name, value in spec.shipped_defaults.items()
    }
    rows = table("rules/README.md", "parameter")
    assert {row[0].strip("`"): (row[1], row[2].split(" ")[0]) for row in rows} == expected


@pytest.mark.parametrize("rule", COMPATIBLE_RULES, ids=lambda rule: rule.name)
def test_given_both_readings_when_their_defaults_are_compared_then_they_agree(rule: Any) -> None:
    documented = in_points(TYPES[rule.name]().in_force())
    container = msgspec.structs.asdict(rule.parameters_type())
    of_page = container | dict(rule.parameters_type.documented)
    shared = documented.keys() & container.keys()
    assert shared or not container
    assert {name: of_page[name] for name in shared} == {name: documented[name] for name in shared}
    shipped = in_points(TYPES[rule.name]().in_force() | dict(SPECS[rule.name].shipped_defaults))
    assert {name: container[name] for name in shared} == {name: shipped[name] for name in shared}


def test_given_the_severities_when_read_then_each_begins_at_its_score() -> None:
    rows = [(float(score), name) for score, name in table("verdicts.md", "score from")]
    assert [name for _, name in rows] == [severity.value for severity in reversed(Severity)]
    for score, name in rows:
        assert severity_of(score) == name
        assert score == 0 or severity_of(score - 0.01) != name


def test_given_the_symptoms_when_read_then_their_causes_are_the_codes() -> None:
    rows = {_rule(symptom): set(map(_rule, causes.split(", "))) for symptom, causes in table("verdicts.md", "symptom")}
    looks = {rule: {spec.symptom, *spec.looks.values()} - {None} for rule, spec in SPECS.items()}
    explained = {
        rule: {*spec.explains, *(each for named in spec.explains_as.values() for each in named)}
        for rule, spec in SPECS.items()
    }
    assert rows == {
        rule: {other for other, named in explained.items() if named & seen and other != rule}
        for rule, seen in looks.items()
        if seen
    }


def _rule(text: str) -> str:
    """Return a rule without the kind of finding, which stands in brackets."""
    return text.partition(" (")[0]


def test_given_the_pages_when_links_are_followed_then_each_leads_to_a_file() -> None:
    root = DOCS.parent
    pages = [root / "README.md", root / "CHANGELOG.md", *DOCS.rglob("*.md")]
    broken = [
        f"{page.relative_to(root)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def test_given_the_readme_when_its_rules_are_read_then_all_twelve_have_a_page() -> None:
    named = {re.sub(r"\[(\w+)\].*", r"\1", row[0]) for row in table("../README.md", "rule")}
    assert named == set(TYPES)
