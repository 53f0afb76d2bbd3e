"""Survivors that no test can find, each with its reason: ``explained.toml``."""

import tomllib
from pathlib import Path

LIST = Path(__file__).with_name("explained.toml")


def explained(file: Path = LIST) -> dict[str, str]:
    """Return the reasons by the mutants' names; raises ValueError for one without a reason."""
    found = {each["mutant"]: each["why"].strip() for each in tomllib.loads(file.read_text()).get("survivor", [])}
    bare = [name for name, why in found.items() if not why]
    if bare:
        raise ValueError(f"no reason is given for {bare[0]!r}")
    return found
