"""A plugin of pytest that puts a mutated source in the place of one module's, in this process alone."""

import importlib.abc
import importlib.machinery
import os
import sys
from pathlib import Path
from types import CodeType

FILE, SOURCE = "MUTATED_FILE", "MUTATED_SOURCE"
"""Environment: the module's file, and the file that holds what it is read as."""


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        """Compile the mutated source, as the module's own file."""
        del fullname
        return compile(Path(os.environ[SOURCE]).read_text(), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """Return the mutated module's spec, None for every other one."""
        del target
        if not fullname.startswith("trainguard"):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)  # type: ignore[arg-type]  # as it was called
        if spec is None or spec.origin is None or Path(spec.origin).resolve() != Path(os.environ[FILE]).resolve():
            return None
        spec.loader = _Loader(fullname, spec.origin)
        return spec


if FILE in os.environ:
    sys.meta_path.insert(0, _Finder())
