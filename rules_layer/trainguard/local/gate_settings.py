"""What a gate compares, as options and a TOML file say it."""

import glob
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainguard.core.errors import RequestError, UnusableError
from trainguard.core.text import one_line
from trainguard.gate.runs import SPEEDS, Metric

PROJECT_FILE = "pyproject.toml"
_SECTION = "gate"
_KEYS = ("baselines", "loss_step", "metrics", "tolerance")
_METRICS = ", ".join(Metric)
_REMOTE = "://"


class GateFileError(UnusableError):
    """A file of settings of a gate that cannot be used."""

    sentence = "settings of the gate in {place!r} cannot be used: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSettings:
    baselines: tuple[str, ...] = ()
    tolerances: Mapping[Metric, float] = field(default_factory=dict)
    metrics: tuple[Metric, ...] = ()
    loss_step: int | None = None


def settings_of(file: Path | None) -> GateSettings:
    """Return the settings of a TOML file, or those of ``./pyproject.toml`` where it has some; raises GateFileError.

    They are its table ``tool.trainguard.gate``, ``gate``, or all of it.
    """
    place = Path(PROJECT_FILE) if file is None else file
    if file is None and not place.is_file():
        return GateSettings()
    try:
        found = tomllib.loads(place.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as fault:
        if file is None:
            return GateSettings()  # It is not the gate's file: whoever owns it says what is wrong.
        raise GateFileError(str(place), getattr(fault, "strerror", None) or str(fault)) from fault
    of_tools = found.get("tool", {})
    section = of_tools.get("trainguard", {}).get(_SECTION) if isinstance(of_tools, dict) else None
    if section is None and file is not None:
        section = found.get(_SECTION, None if "tool" in found else found)
    if section is None:
        if file is None:
            return GateSettings()
        raise GateFileError(str(place), "it has no table [tool.trainguard.gate] or [gate]")
    return _settings(place, section)


def _settings(place: Path, section: Any) -> GateSettings:
    if not isinstance(section, dict):
        raise GateFileError(str(place), f"gate is {section!r:.60}, expected a table")
    unknown = sorted(set(section) - set(_KEYS))
    if unknown:
        raise GateFileError(str(place), f"{unknown[0]!r:.60} is no setting, expected one of {', '.join(_KEYS)}")
    baselines, metrics = section.get("baselines", []), section.get("metrics", [])
    for name, value in (("baselines", baselines), ("metrics", metrics)):
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise GateFileError(str(place), f"{name} is {value!r:.60}, expected a list of texts")
    step = section.get("loss_step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int) or step < 0):
        raise GateFileError(str(place), f"loss_step is {step!r:.60}, expected a number of steps")
    given = section.get("tolerance", {})
    tolerances = [f"{name}={value}" for name, value in given.items()] if isinstance(given, dict) else [str(given)]
    try:
        return GateSettings(
            baselines=tuple(each if _REMOTE in each else str(Path(place.parent, each)) for each in baselines),
            tolerances=tolerances_of(tolerances),
            metrics=metrics_of(metrics),
            loss_step=step,
        )
    except RequestError as fault:
        raise GateFileError(str(place), fault.what) from fault


def metrics_of(names: Sequence[str]) -> tuple[Metric, ...]:
    return tuple(map(_metric, names))


def _metric(name: str) -> Metric:
    try:
        return Metric(name.strip().lower())
    except ValueError:
        raise RequestError(f"{name!r:.60} is no metric", f"Give one of {_METRICS}.") from None


def tolerances_of(given: Sequence[str]) -> Mapping[Metric, float]:
    """Read tolerances such as ``2%``, of step time and throughput, or ``loss=0.03``; raises RequestError."""
    found: dict[Metric, float] = {}
    for each in given:
        name, equals, value = each.rpartition("=")
        tolerance = _part(value, each)
        found |= {_metric(name): tolerance} if equals else dict.fromkeys(SPEEDS, tolerance)
    return found


def _part(value: str, whole: str) -> float:
    text = value.strip()
    try:
        number = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        number = -1.0
    if not 0.0 < number < 1.0:
        raise RequestError(f"The tolerance {whole!r:.60} cannot be used", "Give for example 2%, 0.02 or loss=5%.")
    return number


def expanded(places: Sequence[str]) -> list[str]:
    """Return places, each once, with those that a pattern such as ``runs/*.csv`` finds; raises RequestError."""
    found: dict[str, None] = {}
    for place in places:
        if _REMOTE in place or Path(place).exists() or not glob.has_magic(place):
            found[place] = None
            continue
        root = Path(Path(place).anchor)
        matching = sorted(map(str, root.glob(str(Path(place).relative_to(root.anchor)))))
        if not matching:
            raise RequestError(f"No file or folder is like {one_line(place)!r}", "Name the runs of the baseline.")
        found |= dict.fromkeys(matching)
    return list(found)
