"""Small changes of a module's code, one a mutant: each is a fault that some test must find."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change.

    Attributes
    ----------
    file : Path
    within : str
        The function and class around it, such as ``Table.put``; empty on the module's level.
    lines : range
        The lines of the statement that it is in, without those of statements inside.
    imported : bool
        Whether the code runs when the module is imported, and not when a function is called.
    names : frozenset of str
        What that statement gives a name to: a constant, a field, a function whose default it is.
    what : str
        The change in words, and what is changed.
    source : str
        The whole module with it.
    """

    file: Path
    within: str
    lines: range
    imported: bool
    names: frozenset[str]
    what: str
    source: str

    @property
    def name(self) -> str:
        """What the list of explained survivors calls it: no line, which other changes of the file move."""
        return _name(self.file, self.within, self.what)


@dataclass(frozen=True, slots=True)
class _Place:
    node: Any
    which: int
    statement: ast.stmt
    within: tuple[ast.AST, ...]


@cache
def count_of(file: Path) -> int:
    """Return how many mutants a module has; what is not changed: see `_mark_fixed`."""
    return len(_places(_parsed(file)))


def mutant_of(file: Path, number: int) -> Mutant:
    """Return one mutant of a module, by its number from 0."""
    tree = _parsed(file)
    place = _places(tree)[number]
    what, (_, apply) = _what(place), _changes(place.node)[place.which]
    lines, around, names = _lines(place.statement), _within(place.within), frozenset(_bound(place))
    imported = not any(isinstance(each, _FUNCTIONS) for each in place.within)
    apply()
    source = ast.unparse(ast.fix_missing_locations(tree))
    return Mutant(file, around, lines, imported, names, what, source)


def names_of(file: Path) -> frozenset[str]:
    """Return the names of all mutants of a module, for which it is parsed once."""
    return frozenset(_name(file, _within(each.within), _what(each)) for each in _places(_parsed(file)))


def _name(file: Path, within: str, what: str) -> str:
    return f"{file.parent.name}/{file.name} {within or 'module'}: {what}"


def _what(place: _Place) -> str:
    before = ast.unparse(place.node).partition("\n")[0][:70]
    return f"{_changes(place.node)[place.which][0]}: {before}"


def _parsed(file: Path) -> ast.Module:
    tree = ast.parse(file.read_text())
    _mark_fixed(tree)
    return tree


def _places(tree: ast.Module) -> list[_Place]:
    return [
        _Place(node, which, statement, within)
        for node, statement, within in _walked(tree)
        for which in range(len(_changes(node)))
    ]


def _walked(tree: ast.Module) -> Iterator[tuple[Any, ast.stmt, tuple[ast.AST, ...]]]:
    """Walk a module: each node with its statement, and with the classes and functions in whose bodies it is."""
    waiting: list[tuple[Any, Any, tuple[ast.AST, ...]]] = [(each, each, ()) for each in tree.body]
    while waiting:
        node, statement, within = waiting.pop(0)
        yield node, statement, within
        inside = {id(each) for each in _body(node)}
        for each in ast.iter_child_nodes(node):
            around = (*within, node) if id(each) in inside else within
            waiting.append((each, each if isinstance(each, ast.stmt) else statement, around))


def _body(node: ast.AST) -> list[Any]:
    """Return what runs when a function is called, or lies in a class."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    return list(node.body) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else []


def _lines(statement: ast.stmt) -> range:
    inside = [each.lineno for each in ast.walk(statement) if isinstance(each, ast.stmt) and each is not statement]
    last = min(inside) - 1 if inside else statement.end_lineno or statement.lineno
    return range(statement.lineno, max(last, statement.lineno) + 1)


def _within(around: tuple[ast.AST, ...]) -> str:
    return ".".join(str(getattr(each, "name", "lambda")) for each in around)


def _bound(place: _Place) -> Iterator[str]:
    """Yield the names that the statement of a place binds, and those of the classes around it."""
    yield from (each.name for each in place.within if isinstance(each, ast.ClassDef))
    if isinstance(place.statement, ast.FunctionDef | ast.ClassDef):
        yield place.statement.name
    if isinstance(place.statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = place.statement.targets if isinstance(place.statement, ast.Assign) else [place.statement.target]
        for target in targets:
            yield from (each.id for each in ast.walk(target) if isinstance(each, ast.Name))


@cache
def users(file: Path) -> dict[str, frozenset[int]]:
    """Return the lines in functions of a module that use a name, or an attribute of that name."""
    found: dict[str, set[int]] = {}
    for node, statement, within in _walked(ast.parse(file.read_text())):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None
        if name is not None and any(isinstance(each, _FUNCTIONS) for each in within):
            found.setdefault(name, set()).update(_lines(statement))
    return {name: frozenset(lines) for name, lines in found.items()}


def _mark_fixed(tree: ast.AST) -> None:
    """Mark what is not changed: docstrings, annotations, decorators and keywords of classes, texts, errors, checks."""
    for node in ast.walk(tree):
        held: list[Any] = []
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            held.append(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            held += node.decorator_list
            held += [each.value for each in node.keywords] if isinstance(node, ast.ClassDef) else []
            held += [node.returns] if isinstance(node, ast.FunctionDef) and node.returns else []
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            held.append(node)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            held.append(node)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            held.append(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "zip":
            held += [each.value for each in node.keywords]  # `strict` asserts
        for each in held:
            for inner in ast.walk(each):
                inner.fixed = True  # type: ignore[attr-defined]  # a mark of ours


def _changes(node: ast.AST) -> list[tuple[str, Any]]:  # noqa: PLR0911 - one line a kind of change
    """Return the changes of one node: words, and what makes it."""
    if getattr(node, "fixed", False):
        return []
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        return [("another comparison", lambda: node.ops.__setitem__(0, _COMPARISONS[type(node.ops[0])]()))]
    if isinstance(node, ast.BoolOp):
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        return [("and for or", lambda: setattr(node, "op", other))]
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return [("another operator", lambda: setattr(node, "op", _ARITHMETIC[type(node.op)]()))]
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return [("the other truth", lambda: setattr(node, "value", not node.value))]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return [("another number", lambda: setattr(node, "value", node.value + 1))]
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [("the other branch", lambda: setattr(node, "test", ast.UnaryOp(ast.Not(), node.test)))]
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return [("no call", lambda: setattr(node, "value", ast.Constant(None)))]
    if isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        return [("nothing returned", lambda: setattr(node, "value", ast.Constant(None)))]
    return []
