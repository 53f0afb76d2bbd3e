"""Custom rules on the command line: a command calls `know` before it imports what reads the registry."""

import importlib
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from trainguard.core.errors import RequestError, RuleLoadError, error_text
from trainguard.rules.extension import MARKER, RULES, AnyRule, rule_named, rules_of

_REGISTRY = "trainguard.rules.registry"
_FOLDER = "folder"
_GIVEN = "trainguard_rule_given"


def know(*, rule: str | None = None, package: Path | None = None) -> None:
    """Register the rules of a package, or the one rule at ``module:Class``; raises RuleLoadError, RequestError."""
    if rule is None and package is None:
        return
    if rule is None:
        module = _imported(Path(str(package)))
    else:
        module = ModuleType(_GIVEN)
        setattr(module, RULES, (rule_at(rule),))
    rules_of(module, ())
    _install(module)


def rule_at(place: str) -> AnyRule:
    """Return the rule at ``module:Class``, found from the working folder too; raises RuleLoadError."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return rule_named(place)
    except RuleLoadError as fault:
        package = place.partition(":")[0].partition(".")[0]
        missing = fault.__cause__
        if not isinstance(missing, ModuleNotFoundError) or missing.name != package:
            raise
        found = [each.parent for each in Path(here).glob(f"*/{package}") if package and each.is_dir()]
        how = f"set PYTHONPATH={found[0]}" if found else "call it in the folder that holds the module"
        expected = f"a module of {here} or of Python's path: {how}"
        raise RuleLoadError(place, "module", package, expected) from fault


def _imported(folder: Path) -> ModuleType:
    folder = folder.expanduser().resolve()
    name, source = folder.name, folder / "__init__.py"
    if not source.is_file():
        raise RuleLoadError("--rules-package", _FOLDER, str(folder), "a folder with an __init__.py in it")
    if not name.isidentifier() or name in sys.modules or name in sys.stdlib_module_names:
        raise RuleLoadError("--rules-package", _FOLDER, str(folder), "a name that is a module's, and no other's")
    spec = spec_from_file_location(name, source, submodule_search_locations=[str(folder)])
    if spec is None or spec.loader is None:
        raise RuleLoadError("--rules-package", _FOLDER, str(folder), "a package of Python")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as fault:
        message = error_text(fault)
        raise RuleLoadError(name, "package", message, "one that can be imported") from fault
    return module


def _install(module: ModuleType) -> None:
    """Let the registry find the package's rules; raises RuleLoadError when it refuses them."""
    if _REGISTRY in sys.modules:
        raise RequestError(
            "custom rules were registered too late", "Register them before the rule registry is imported."
        )
    marker = ModuleType(MARKER)
    vars(marker).update(PACKAGE=module.__name__, RULES=(module.__name__,))
    sys.modules.update({MARKER: marker, module.__name__: module})
    registry = importlib.import_module(_REGISTRY)
    for fault in registry.EXTENSION.faults.values():
        raise fault
