"""Starts the sampler in an image where the collector is installed, by ``TRAINGUARD_OUTPUT`` alone.

``trainguard_collector_start.pth`` calls `begin` in each Python process. The first one of a node that runs a script or a
module is observed, with all that it starts.
"""

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainguard_collector.names import command_line
from trainguard_collector.session import start_later
from trainguard_collector.spawn import MARK

# Seconds after which samples begin; ``0`` switches this off.
DELAY = "TRAINGUARD_AUTOSTART"

# A process that ends sooner writes nothing: it prepares a training job and is not the training.
DELAY_S = 15.0

# The collector's own command starts its sampler itself.
TOOLS = frozenset({
    "aws", "black", "build", "compileall", "conda", "coverage", "ensurepip", "get_pip", "ipykernel_launcher",
    "ipython", "jupyter", "mamba", "micromamba", "mypy", "pip", "pip_compile", "pipx", "poetry", "ptpython",
    "pytest", "ruff", "setup", "site", "supervisord", "sysconfig", "tensorboard", "trainguard",
    "trainguard_collector", "twine", "uv", "venv", "virtualenv",
})  # fmt: skip

_begun = False
_WITH_VALUE = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_VERSION = re.compile(r"[\d.]+$")


def begin() -> None:
    """Start the sampler, if this process is what is to be observed; raises nothing."""
    global _begun  # noqa: PLW0603  # An environment may read the file twice.
    with suppress(Exception):
        delay_s = float(os.environ.get(DELAY) or DELAY_S)
        if _begun or MARK in os.environ or delay_s <= 0.0 or not trains(command_line()):
            return
        _begun = True
        start_later(delay_s)


def trains(words: Sequence[str]) -> bool:
    """Whether a command line of Python runs a script or a module that may be a training."""
    rest = iter(words[1:])
    for word in rest:
        if word in _WITH_VALUE:
            next(rest, None)
        elif word == "-m":
            return _is_program(next(rest, "").split(".")[0])
        elif word.startswith("-m") and not word.startswith("--"):
            return _is_program(word[2:].split(".")[0])
        elif word == "-" or word.startswith(("-c", "-V", "-h", "-?", "--help", "--version")):
            return False
        elif not word.startswith("-"):
            return _is_program(Path(word).name)
    return False


def _is_program(name: str) -> bool:
    stem = _VERSION.sub("", name[:-3] if name.endswith(".py") else name).replace("-", "_")
    return bool(stem) and stem not in TOOLS
