"""The reference of parameters, and the pages' tables of defaults, severities and causes, say what the code does."""

import html
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from docs.site.reference import rules
from trainguard.core.finding import Severity
from trainguard.engine.verdicts.findings import severity_of
from trainguard.managed.parameters import RULES as COMPATIBLE_RULES
from trainguard.rules.family_rules import bare
from trainguard.rules.profiler_report import PROFILER_REPORT, ReportParameters
from trainguard.rules.protocol import RuleParameters
from trainguard.rules.registry import ALL_RULES, SPECS
from trainguard.rules.training.registry import TRAINING_RULES

DOCS = Path(__file__).parents[2] / "docs"
TYPES: dict[str, type[RuleParameters]] = {
    **{rule.name: rule.parameters_type for rule in ALL_RULES},
    PROFILER_REPORT: ReportParameters,
}
ACCEPTED_BY_ALL = "scan_interval_us"
NONE = "none"
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


def in_reference(rule: str) -> dict[str, list[str]]:
    """Return the cells behind each parameter in a rule's section of the reference: default, unit, values, meaning."""
    section = rules().partition(f"\n## {rule}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    cells = [[html.unescape(re.sub("</?code>", "", cell.strip())) for cell in row] for row in rows]
    return {name.strip("`"): said for name, *said in cells}


@pytest.mark.parametrize("rule", TYPES)
def test_parameters_in_the_reference_are_those_of_the_code(rule: str) -> None:
    defaults = TYPES[rule]().in_force()
    del defaults[ACCEPTED_BY_ALL]
    listed = {name: said[0].replace(NONE, UNKNOWN) for name, said in in_reference(rule).items()}
    assert listed == {name: shown(value) for name, value in defaults.items()}


@pytest.mark.parametrize("rule", COMPATIBLE_RULES, ids=lambda rule: rule.name)
def test_defaults_of_both_readings_agree(rule: Any) -> None:
    documented = in_points(TYPES[rule.name]().in_force())
    container = msgspec.structs.asdict(rule.parameters_type())
    of_page = container | dict(rule.parameters_type.documented)
    shared = documented.keys() & container.keys()
    assert shared or not container
    assert {name: of_page[name] for name in shared} == {name: documented[name] for name in shared}
    shipped = in_points(TYPES[rule.name]().in_force() | dict(SPECS[rule.name].shipped_defaults))
    assert {name: container[name] for name in shared} == {name: shipped[name] for name in shared}


def test_each_severity_begins_at_its_score() -> None:
    rows = [(float(score), name) for score, name in table("verdict.md", "score from")]
    assert [name for _, name in rows] == [severity.value for severity in reversed(Severity)]
    for score, name in rows:
        assert severity_of(score) == name
        assert score == 0 or severity_of(score - 0.01) != name


def test_causes_of_symptoms_are_those_of_the_code() -> None:
    rows = {_rule(symptom): set(map(_rule, causes.split(", "))) for symptom, causes in table("verdict.md", "symptom")}
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


def test_every_link_of_the_pages_leads_to_a_file() -> None:
    root = DOCS.parent
    pages = [root / "README.md", root / "CHANGELOG.md", *DOCS.rglob("*.md")]
    broken = [
        f"{page.relative_to(root)}: {link}"
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert broken == []


def test_the_page_of_all_rules_links_to_each() -> None:
    page = (DOCS / "rules" / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\[(\w+)\]\(\1\.md\)", page)) == sorted(TYPES)
    assert {path.stem for path in (DOCS / "rules").glob("*.md")} == {*TYPES, "README"}


def test_the_reference_says_what_each_rule_finds() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#\w+\) \| \S.+ \| \S.+ \|$", rules(), re.MULTILINE)
    assert rows == [*TYPES, *(bare(rule.name) for rule in TRAINING_RULES)]
