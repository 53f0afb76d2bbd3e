"""What the command line of torchrun says of the job: the same that torchrun says to the ranks that it starts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Optional

_PROGRAM, _MODULES = "torchrun", ("torch.distributed.run", "torch.distributed.launch", "torchrun")
_FLAGS = frozenset({
    "-h", "--help", "-m", "--module", "--no-python", "--run-path", "--standalone", "--virtual-local-rank",
})  # fmt: skip
"""Options without a value; each other one has one."""


def with_torchrun(environment: Mapping[str, str], words: Sequence[str]) -> "dict[str, str]":
    """Return the environment with the variables of torchrun's ranks, for the node on which its command line runs.

    ``words`` are a command and its arguments. What the environment says goes before; so do, as for torchrun itself,
    options before the variables ``PET_RDZV_ID``, ``PET_NNODES`` and ``PET_NODE_RANK``.
    """
    arguments = _arguments(words)
    if arguments is None:
        return dict(environment)
    options = _options(arguments)

    def told(name: str, default: str) -> str:
        return options.get(f"--{name}") or environment.get(f"PET_{name.replace('-', '_').upper()}") or default

    alone = "--standalone" in options
    nodes = _size("1" if alone else told("nnodes", "1"))
    found = {"TORCHELASTIC_RUN_ID": "none" if alone else told("rdzv-id", "none")}
    if nodes is not None:
        found["GROUP_WORLD_SIZE"] = str(nodes)
    rank = "0" if nodes == 1 else told("node-rank", "")
    if rank.isdecimal():
        found["GROUP_RANK"] = rank
    return {**found, **environment}


def _arguments(words: Sequence[str]) -> Optional[Sequence[str]]:
    """Return what follows torchrun; None where another program is run."""
    for number, word in enumerate(words):
        if Path(word).name == _PROGRAM:
            return words[number + 1 :]
        if word == "-m" and words[number + 1 : number + 2] and words[number + 1] in _MODULES:
            return words[number + 2 :]
        if word.startswith("-m") and word[2:] in _MODULES:
            return words[number + 1 :]
        if word.endswith(".py") or word == "-m":
            return None
    return None


def _options(arguments: Sequence[str]) -> "dict[str, str]":
    """Return torchrun's options by name, up to the script; hyphens and underscores are the same."""
    found = {}
    rest = iter(arguments)
    for word in rest:
        if not word.startswith("-") or word == "--":
            break
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if not equals and name not in _FLAGS:
            value = next(rest, "")
        found[name] = value
    return found


def _size(text: str) -> Optional[int]:
    """Return the number of nodes; None where it may change."""
    least, _, most = text.partition(":")
    return int(least) if least.isdecimal() and most in ("", least) and int(least) > 0 else None
