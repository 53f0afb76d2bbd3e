"""Puts the construct into the wheel, as the package `trainguard_cdk`: other projects may have an `infra` too."""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "trainguard_cdk"
# What only a checkout needs; `construct.py` is the package itself.
_LEFT_OUT = ("__init__.py", "__pycache__", "app.py", "audit.*", "central", "release", "teardown.py", "wheel.py")
_IMPORT = re.compile(r"^(\s*(?:from|import) )infra\b", re.MULTILINE)


class ConstructHook(BuildHookInterface):  # type: ignore[misc]  # hatchling is there when a wheel is built
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Have the wheel hold `infra` under the package's name, and the functions below it."""
        if version == "editable":
            return
        self._made = tempfile.TemporaryDirectory(prefix="trainguard-cdk-")
        package = Path(self._made.name) / PACKAGE
        root = Path(self.root)
        shutil.copytree(root / "infra", package, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        shutil.copytree(root / "lambdas", package / "lambdas", ignore=shutil.ignore_patterns("__pycache__"))
        (package / "construct.py").rename(package / "__init__.py")
        for file in package.rglob("*.py"):
            file.write_text(_IMPORT.sub(rf"\1{PACKAGE}", file.read_text("utf-8")), "utf-8")
        (package / "py.typed").touch()
        build_data["force_include"][str(package)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy."""
        del build_data, artifact_path
        if version != "editable":
            self._made.cleanup()
