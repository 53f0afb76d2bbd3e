"""The collector runs in training images: on the oldest Python that its distribution names."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

COLLECTOR = Path(__file__).parents[2] / "collector"
SOURCES = sorted((COLLECTOR / "trainguard_collector").rglob("*.py"))
LATER_IN_DATACLASS = {"kw_only", "slots"}


def annotations(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield what is evaluated when the module is imported; an annotation in quotes is not."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def oldest() -> tuple[int, int]:
    wanted = tomllib.loads((COLLECTOR / "pyproject.toml").read_text())["project"]["requires-python"]
    found = re.fullmatch(r">=(\d+)\.(\d+)", wanted)
    assert found is not None, wanted
    return int(found[1]), int(found[2])


def test_the_oldest_python_knows_the_grammar_and_the_names() -> None:
    assert SOURCES
    for path in SOURCES:
        _read_by_oldest(path)


def _read_by_oldest(path: Path) -> None:
    tree = ast.parse(path.read_bytes(), str(path), feature_version=oldest())
    for annotation in annotations(tree):
        assert not any(isinstance(each, ast.BitOr) for each in ast.walk(annotation)), f"{path}:{annotation.lineno}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            names = {keyword.arg for keyword in node.keywords}
            assert node.func.id != "dataclass" or not names & LATER_IN_DATACLASS, f"{path}:{node.lineno}"
            assert node.func.id != "zip" or "strict" not in names, f"{path}:{node.lineno}"
            assert node.func.id not in {"aiter", "anext"}, f"{path}:{node.lineno}"
