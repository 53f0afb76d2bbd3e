"""Which tests reach which line, and how long each takes: measured once."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import coverage
import pytest

MAP = Path("build/mutants/lines.json")


class Cover:
    """A plugin of pytest that notes, for each passed test, the lines of ``files`` that it reached."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = [str(file.resolve()) for file in files]
        self._coverage = coverage.Coverage(data_file=None, include=self._files, config_file=False)
        self._tests: dict[str, float] = {}

    def pytest_sessionstart(self) -> None:
        """Begin to measure, before the first module is imported for a test."""
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure a test with its fixtures."""
        self._coverage.switch_context(item.nodeid)
        begun = time.monotonic()
        try:
            return (yield)
        finally:
            self._tests[item.nodeid] = time.monotonic() - begun
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Mark a test that fails, or is skipped, without any mutant."""
        if not report.passed:
            self._tests[report.nodeid] = float("inf")

    def pytest_sessionfinish(self) -> None:
        """Write the map."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines: dict[str, list[str]] = defaultdict(list)
        for file in self._files:
            for line, contexts in data.contexts_by_lineno(file).items():
                lines[f"{file}:{line}"] = [name for name in contexts if name]
        MAP.parent.mkdir(parents=True, exist_ok=True)
        passed = {name: took for name, took in self._tests.items() if took != float("inf")}
        MAP.write_text(json.dumps({"tests": passed, "lines": lines}))
