"""Puts a mutated source in the place of one module's, in this process alone."""

import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from types import CodeType


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module of another source."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """Compile the mutated source, as the module's own file."""
        del fullname
        return compile(self._source, self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the mutated module."""

    def __init__(self, file: Path, source: str) -> None:
        self._file = file.resolve()
        self._source = source

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return the mutated module's spec, None for every other one."""
        del target
        if not fullname.startswith("trainguard"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]  # as it was called
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != self._file:
            return None
        spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


def put(file: Path, source: str) -> None:
    """Let a module that is still to be imported be of another source; RuntimeError when the package is imported."""
    imported = [name for name in sys.modules if name.partition(".")[0] == "trainguard"]
    if imported:
        raise RuntimeError(f"{imported[0]} is imported already: no mutant can take a module's place")
    sys.meta_path.insert(0, _Finder(file, source))
