"""The variables that switch PyTorch's flight recorder on, with its dumps in the collector's folder.

Their names are those of ``FlightRecorder.hpp``, ``FlightRecorder.cpp`` and ``ProcessGroupNCCL.hpp`` in
``torch/csrc/distributed/c10d`` of PyTorch. Where both names of a pair are set, the first counts and torch warns.
"""

import re
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Optional

from trainguard_collector.objects import DUMP, objects_folder
from trainguard_collector.settings import Settings

_BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILE = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_TIMEOUT = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_ENTRIES = "2000"
_FIRST_WITH_NEW_NAMES = (2, 9)
_VERSION = re.compile(r"__version__ = ['\"](\d+)\.(\d+)")


def set_variables(environment: "MutableMapping[str, str]", settings: Settings) -> "dict[str, str]":
    """Set what the user has set under neither of its names; return what was set. Raises nothing."""
    found: dict[str, str] = {}
    with suppress(OSError):
        if settings.with_hangs:
            folder = objects_folder(settings.spool, settings.identity.job, settings.identity.node)
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # torch makes no folder
            for names, used, value in _wanted(folder):
                if not any(name in environment for name in names):
                    found.update(dict.fromkeys(used, value))
    environment.update(found)
    return found


def take_back(environment: "MutableMapping[str, str]", found: "dict[str, str]") -> None:
    """Delete variables that `set_variables` has set, unless somebody has changed them since."""
    for name, value in found.items():
        if environment.get(name) == value:
            del environment[name]


def _wanted(folder: Path) -> "Iterator[tuple[tuple[str, ...], tuple[str, ...], str]]":
    """Yield the names of a variable, those of them that this torch knows without a warning, and the value."""
    version = _torch_version()
    for names, value in ((_BUFFER, _ENTRIES), (_FILE, str(folder / DUMP))):
        known = names[:1] if version is not None and version >= _FIRST_WITH_NEW_NAMES else names[1:]
        yield names, names if version is None else known, value
    yield _ON_TIMEOUT, _ON_TIMEOUT[1:], "1"  # NCCL knows it by this name alone


def _torch_version() -> "Optional[tuple[int, int]]":
    """Return the version of the installed torch, which is not imported; None where it is not known."""
    try:
        spec = find_spec("torch")
        text = Path(str(spec.origin)).with_name("version.py").read_text("utf-8") if spec is not None else ""
    except (OSError, ValueError, ImportError):
        return None
    found = _VERSION.search(text)
    return None if found is None else (int(found[1]), int(found[2]))
