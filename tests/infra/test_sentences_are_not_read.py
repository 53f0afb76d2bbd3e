"""No code reads meaning out of the product's own sentences: facts have kinds and names for that."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = Path(__file__).parents[2] / "rules_layer" / "trainguard"
SENTENCES = frozenset({"reason", "advice", "clause", "health", "recommendation", "past_reason", "past_advice"})
READS = frozenset(
    {"startswith", "endswith", "find", "index", "count", "partition", "rpartition", "split", "removeprefix", "search"}
)
MATCHERS = frozenset({"search", "match", "fullmatch", "findall", "finditer", "sub", "split"})


def sentences_read(source: str) -> Iterator[int]:
    """Yield the lines at which a program looks into a sentence."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare) and _compares(node):
            yield node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            on_sentence = node.func.attr in READS and _is_sentence(node.func.value)
            given = node.func.attr in MATCHERS and any(map(_is_sentence, node.args))
            if on_sentence or given:
                yield node.lineno


def _compares(node: ast.Compare) -> bool:
    sides = [node.left, *node.comparators]
    texts = any(isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value for side in sides)
    return any(map(_is_sentence, sides)) and (texts or any(isinstance(op, ast.In | ast.NotIn) for op in node.ops))


def _is_sentence(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


@pytest.mark.parametrize("room", sorted(path.name for path in PRODUCT.iterdir() if path.is_dir()))
def test_no_code_reads_a_sentence(room: str) -> None:
    read = {
        f"{path.relative_to(PRODUCT)}:{line}"
        for path in (PRODUCT / room).rglob("*.py")
        for line in sentences_read(path.read_text("utf-8"))
    }
    assert not read


@pytest.mark.parametrize(
    "source",
    [
        'if "pause for" in result.reason: pass',
        're.search("pause", finding.reason)',
        "PAUSES.search(result.reason)",
        'said = finding.advice.startswith("Raise")',
        'same = result.reason == "gpu0 is idle."',
    ],
)
def test_a_program_that_reads_a_sentence_is_found(source: str) -> None:
    assert list(sentences_read(source)) == [1]


def test_a_program_that_passes_a_sentence_on_is_not_found() -> None:
    assert not list(sentences_read('row = f"{result.reason} {result.advice or 1}"'))
