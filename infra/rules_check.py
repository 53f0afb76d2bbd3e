"""Run as a process of its own: imports a package of rules where only the layer's modules can be imported."""

import importlib
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from infra.rules_package import LAYER_PACKAGES, NOT_DEPLOYED
from trainguard.rules.extension import rules_of
from trainguard.rules.registry import RESERVED_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_LEFT_OUT = tuple(f"trainguard.{name}" for name in NOT_DEPLOYED if not name.endswith(".py"))


class _LayerOnly(MetaPathFinder):
    def __init__(self, package: str) -> None:
        self._known = {package, *LAYER_PACKAGES, *sys.stdlib_module_names}

    def find_spec(
        self, fullname: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> ModuleSpec | None:
        """Refuse what the functions would not find, and leave the rest to the others."""
        del path, target
        if fullname.partition(".")[0] not in self._known or fullname.startswith(_LEFT_OUT):
            raise ModuleNotFoundError(
                f"No module named {fullname!r} in the layer: it holds {', '.join(LAYER_PACKAGES)}"
            )
        return None


def main(folder: str, package: str) -> int:
    """Print the names of the package's rules; return 1 with a line on what is wrong on the standard error."""
    sys.path.insert(0, folder)
    sys.meta_path.insert(0, _LayerOnly(package))
    try:
        rules = rules_of(importlib.import_module(package), RESERVED_NAMES)
    except (Exception, SystemExit) as fault:
        told = str(fault).replace("\n", " ")
        sys.stderr.write(f"\n{type(fault).__name__}: {told}\n")
        return 1
    sys.stdout.write(f"\nrules: {','.join(rule.name for rule in rules)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
