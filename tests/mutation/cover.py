"""Which tests reach which line, and how long each takes: measured once."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import coverage
import pytest

MAP = Path("build/mutants/lines.json")


class Cover:
    """A plugin of pytest that notes, for each passed test, the lines of ``files`` that it reached."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        include = [str(file.resolve()) for file in files]
        self._coverage = coverage.Coverage(data_file=None, include=include, config_file=False)
        self._tests: dict[str, float] = {}
        self._not_passed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        """Begin to measure, before the first module is imported for a test."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test with its fixtures."""
        self._coverage.switch_context(item.nodeid)
        begun = time.process_time()
        try:
            return (yield)
        finally:
            self._tests[item.nodeid] = time.process_time() - begun
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out a test that fails, or is skipped, without any mutant."""
        if not report.passed:
            self._not_passed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the map; what it knows of other tests stays in it."""
        self._coverage.stop()
        data = self._coverage.get_data()
        passed = self._tests.keys() - self._not_passed
        before = Reached.read() if MAP.exists() else Reached({}, {})
        kept = before.seconds.keys() - self._tests.keys()
        seconds = {name: before.seconds[name] for name in kept} | {name: self._tests[name] for name in passed}
        numbers = {name: number for number, name in enumerate(seconds)}
        lines: dict[str, dict[int, list[int]]] = {}
        for file in map(str, self._files):
            found = {line: names & kept for line, names in before.lines.get(file, {}).items()}
            for line, contexts in data.contexts_by_lineno(str(Path(file).resolve())).items():
                found[line] = found.get(line, frozenset()) | (passed & set(contexts))
            lines[file] = {line: [numbers[name] for name in names] for line, names in found.items()}
        MAP.parent.mkdir(parents=True, exist_ok=True)
        MAP.write_text(json.dumps({"tests": seconds, "lines": lines}))


@dataclass(frozen=True, slots=True)
class Reached:
    """The map: CPU seconds of each test, and the tests that reach a file's lines when they run.

    Code that runs when a module is imported is reached by no test: the first one that needs the module imports it.
    """

    seconds: dict[str, float]
    lines: dict[str, dict[int, frozenset[str]]]

    @classmethod
    def read(cls) -> "Reached":
        """Return what was measured last."""
        document = json.loads(MAP.read_text())
        names = list(document["tests"])
        lines = {
            file: {int(line): frozenset(names[each] for each in found) for line, found in of_file.items()}
            for file, of_file in document["lines"].items()
        }
        return cls(document["tests"], lines)

    def of(self, file: Path, lines: range) -> frozenset[str]:
        """Return the tests that reach one of some lines."""
        of_file = self.lines.get(str(file), {})
        return frozenset().union(*(of_file.get(line, frozenset()) for line in lines))
