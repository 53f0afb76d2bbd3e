"""Which tests may find a mutant: those that reach its line, or what it gives a name to."""

import ast
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from tests.mutation.cover import Reached
from tests.mutation.mutants import Mutant, users

# Tests that compare all that comes out, and not what one of them is about.
COMPARING = "tests/answers/"


class Reach:
    """Chooses tests by the map.

    Code that runs when a module is imported is reached by no test. It is tested by what uses it: the tests that reach
    lines which name what the statement defines, in its module and in those that import it; then those that reach any
    line of the module; then those whose own file imports the module.
    """

    def __init__(self, known: Reached, files: Sequence[Path]) -> None:
        self._known = known
        self._files = files

    def tests_of(self, mutant: Mutant, most_s: float) -> list[str]:
        """Return the tests that may find a mutant, the likeliest and fastest first, for at most so many CPU seconds."""
        chosen: dict[str, None] = {}
        spent = 0.0
        for tests in self._circles(mutant):
            for test in sorted(tests - chosen.keys(), key=partial(self._likelihood, _module(mutant.file))):
                if spent + self._known.seconds[test] > most_s:
                    break
                spent += self._known.seconds[test]
                chosen[test] = None
        return list(chosen)

    def _circles(self, mutant: Mutant) -> Iterator[frozenset[str]]:
        direct = self._known.of(mutant.file, mutant.lines)
        yield direct
        if not mutant.imported:
            return
        near = [mutant.file, *(file for file in self._files if _module(mutant.file) in imports_of(file))]
        yield frozenset().union(*(self._users(file, mutant.names) for file in near))
        yield frozenset().union(*self._known.lines.get(str(mutant.file), {}).values())
        yield frozenset(
            test for test in self._known.seconds if _module(mutant.file) in imports_of(Path(test.partition("::")[0]))
        )

    def _likelihood(self, module: str, test: str) -> tuple[bool, bool, float]:
        """Order tests: those whose own file imports the mutant's module, those that compare all, and the fast ones."""
        is_own = module in imports_of(Path(test.partition("::")[0]))
        return not is_own, not test.startswith(COMPARING), self._known.seconds[test]

    def _users(self, file: Path, names: frozenset[str]) -> frozenset[str]:
        lines = frozenset[int]().union(*(users(file).get(name, frozenset()) for name in names))
        of_file = self._known.lines.get(str(file), {})
        return frozenset[str]().union(*(of_file.get(line, frozenset()) for line in lines))


def _module(file: Path) -> str:
    """Return the name under which a file of the package is imported."""
    parts = file.with_suffix("").parts
    return ".".join(parts[parts.index("trainguard") :])


@cache
def imports_of(file: Path) -> frozenset[str]:
    """Return the modules that a file imports itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{each.name}" for each in node.names)
    return frozenset(found)
