"""The page for those who come from SageMaker Debugger: its parameters are the code's, its samples run."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trainguard.config
from tests.unit.test_docs_parameters import shown, table
from trainguard.aws.alert_channels import EVENT_SOURCE, EVENT_TYPE
from trainguard.config import rule_configs
from trainguard.engine.settings.tag_names import NAMESPACE
from trainguard.rules.parameters import PARAMETERS_TYPES
from trainguard.rules.registry import SPECS
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.request import AlertRequest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("../README.md", "migrating.md", "launching.md")


def samples(language: str) -> Iterator[tuple[str, int, str]]:
    """Yield each page's code blocks of a language, with their numbers in it."""
    for page in PAGES:
        blocks = re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
        for number, block in enumerate(blocks):
            yield page, number, block


SAMPLES = list(samples("python"))
OURS = [sample for sample in SAMPLES if "trainguard" in sample[2]]
THEIRS = [sample for sample in SAMPLES if "trainguard" not in sample[2]]


class Called:
    """Stands for whatever a sample calls that is not ours, and keeps what it was given."""

    def __init__(self) -> None:
        self.given: list[dict[str, Any]] = []

    def __call__(self, *_: object, **given: Any) -> "Called":
        self.given.append(given)
        return self

    def __getattr__(self, name: str) -> "Called":
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def test_migration_pages_have_samples_of_both_sides() -> None:
    assert len(OURS) >= 8
    assert THEIRS


@pytest.mark.parametrize("page", PAGES)
def test_own_samples_of_a_page_run_in_order(page: str) -> None:
    outside = Called()
    names = {"client": outside, "PyTorch": outside, "ModelTrainer": outside, "more": {}, "job": "my-job"}
    for where, number, block in OURS:
        if where == page:
            exec(compile(block, f"{page}#{number}", "exec"), names)  # noqa: S102 -- the page's own code
    assert any("Tags" in given or "tags" in given for given in outside.given)
    assert any("ProfilerConfig" in given or "profiler_config" in given for given in outside.given)


@pytest.mark.parametrize("sample", THEIRS, ids=lambda sample: f"{sample[0]}#{sample[1]}")
def test_names_of_a_sdk_sample_exist_here(
    sample: tuple[str, int, str],
) -> None:
    for node in ast.walk(ast.parse(sample[2])):
        if isinstance(node, ast.ImportFrom) and node.module == "sagemaker.debugger":
            assert {name.name for name in node.names} <= set(trainguard.config.__all__)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if ast.unparse(node.func.value) == "rule_configs":
            kind = getattr(rule_configs, node.func.attr)
            kind(**{str(word.arg): ast.literal_eval(word.value) for word in node.keywords})


def test_the_table_has_each_default_that_ships_otherwise() -> None:
    expected = []
    for rule, spec in SPECS.items():
        defaults = PARAMETERS_TYPES[rule]().in_force()
        for name in spec.managed_parameters:
            if name in spec.managed_aliases:
                continue
            held = f"{name}_s" if defaults.get(f"{name}_s") is not None else name
            values = [shown(each) for each in (defaults[held], spec.shipped_defaults.get(held, defaults[held]))]
            unit = " s" if held != name else ""
            if values[0] != values[1]:
                expected.append([f"`{rule}_{name}`", *(value + unit for value in values)])
    assert sorted(table("migrating.md", "managed parameter")) == sorted(expected)
    assert f"`{NAMESPACE}<parameter>`" in (DOCS / "migrating.md").read_text("utf-8")


def test_event_pattern_matches_what_is_emitted() -> None:
    patterns = [json.loads(block) for page, _, block in samples("json") if page == "migrating.md"]
    (pattern,) = [each for each in patterns if each["source"] == [EVENT_SOURCE]]
    assert pattern["detail-type"] == [EVENT_TYPE]
    request = json.loads((DOCS.parent / "events" / "send_alert.json").read_text("utf-8"))
    document = compose_alert(AlertRequest.read(request), now=0.0).document
    assert set(pattern["detail"]) == {"kind", "rule"}
    assert all(document[name] in wanted for name, wanted in pattern["detail"].items())
