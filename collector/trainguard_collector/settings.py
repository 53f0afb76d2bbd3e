"""What the collector is told: options of its command, arguments of ``start``, and the environment."""

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional

from trainguard_collector.names import Identity
from trainguard_collector.resources import find_resources

INTERVALS_MS = (100, 200, 500, 1_000, 5_000, 60_000)
DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_MB = 256
SMALLEST_SPOOL_MB = 16
_MOST_SETTINGS, _LONGEST_NAME, _LONGEST_VALUE = 200, 128, 256


class SettingError(ValueError):
    """A setting cannot be used; the message names it, its value and what would be right."""

    def __init__(self, name: str, value: object, expected: str) -> None:
        super().__init__(f"{name} is {value!r}, expected {expected}")


@dataclass(frozen=True)
class Settings:
    """All that a sampler process needs; it crosses to that process as JSON."""

    output: str
    identity: Identity
    interval_ms: int = DEFAULT_INTERVAL_MS
    spool: str = ""
    spool_mb: int = DEFAULT_SPOOL_MB
    instance_type: Optional[str] = None
    procfs: str = "/proc"
    cgroup: str = "/sys/fs/cgroup"
    finish_s: float = 20.0
    delay_s: float = 0.0
    began_at: Optional[float] = None
    """When what is observed began, epoch seconds; None for the sampler's own start."""
    job_settings: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the settings as JSON, for `from_json`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        """Return the settings that `to_json` wrote."""
        fields = json.loads(text)
        return cls(**{**fields, "identity": Identity(**fields["identity"])})


def read_settings(
    environment: Mapping[str, str],
    identity: Identity,
    *,
    output: Optional[str] = None,
    interval_ms: Optional[int] = None,
) -> Optional[Settings]:
    """Return the settings; an argument goes before its variable. None when there is no output: the collector is off.

    Raises
    ------
    SettingError
        When one of them cannot be used.
    """
    place = output or environment.get("TRAINGUARD_OUTPUT", "")
    if not place:
        return None
    if "://" in place and not (place.startswith("s3://") and len(place) > len("s3://")):
        raise SettingError("TRAINGUARD_OUTPUT", place, "s3://bucket/prefix or a folder")
    interval = (
        interval_ms if interval_ms is not None else _whole(environment, "TRAINGUARD_INTERVAL_MS", DEFAULT_INTERVAL_MS)
    )
    if interval not in INTERVALS_MS:
        raise SettingError("TRAINGUARD_INTERVAL_MS", interval, f"one of {', '.join(map(str, INTERVALS_MS))}")
    spool_mb = _whole(environment, "TRAINGUARD_SPOOL_MB", DEFAULT_SPOOL_MB)
    if spool_mb < SMALLEST_SPOOL_MB:
        raise SettingError("TRAINGUARD_SPOOL_MB", spool_mb, f"at least {SMALLEST_SPOOL_MB}")
    if not place.startswith("s3://"):
        place = str(Path(place).absolute())
    resources = find_resources(environment, identity)
    if resources is None:
        expected = '{"batch_job": "<id>"}, or instances such as i-0123456789abcdef0,i-0123456789abcdef1'
        raise SettingError("TRAINGUARD_RESOURCES", environment["TRAINGUARD_RESOURCES"][:100], expected)
    return Settings(
        output=place.rstrip("/"),
        identity=identity,
        interval_ms=interval,
        spool=environment.get("TRAINGUARD_SPOOL") or default_spool(),
        spool_mb=spool_mb,
        instance_type=environment.get("TRAINGUARD_INSTANCE_TYPE") or identity.instance_type,
        procfs=environment.get("TRAINGUARD_PROCFS", "/proc"),
        cgroup=environment.get("TRAINGUARD_CGROUP", "/sys/fs/cgroup"),
        finish_s=float(_whole(environment, "TRAINGUARD_FINISH_S", 20)),
        job_settings=_job_settings(environment.get("TRAINGUARD_SETTINGS", "")),
        tags=_tags(environment.get("TRAINGUARD_TAGS", "")),
        resources=resources,
    )


_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_spool() -> str:
    """Return the folder of this user's spools, in the folder for temporary files.

    Where another user of the machine has made that one, who could change what is in it, it is in the home folder.
    """
    folder = Path(tempfile.gettempdir(), f"trainguard-collector-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    try:
        found = folder.lstat()
    except OSError:
        return str(folder)
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS_MAY_WRITE
    return str(folder if private else Path.home() / ".cache" / "trainguard-collector")


def _job_settings(text: str) -> dict[str, Any]:
    """Return the settings of a job outside SageMaker, which has no tags: names and values of ``job.json``."""
    found = _named(text)
    if found is not None and all(map(_is_setting, found, found.values())):
        return found
    raise SettingError("TRAINGUARD_SETTINGS", text[:100], 'a JSON object such as {"LowGPUUtilization_window_s": 120}')


def _tags(text: str) -> dict[str, str]:
    """Return the tags of a job outside SageMaker, such as its owner: texts of ``job.json``."""
    found = _named(text)
    if found is not None and all(isinstance(each, str) and _is_setting(name, each) for name, each in found.items()):
        return found
    raise SettingError("TRAINGUARD_TAGS", text[:100], 'a JSON object of texts such as {"owner": "vision"}')


def _named(text: str) -> Optional[dict[str, Any]]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return None
    return found if isinstance(found, dict) and len(found) <= _MOST_SETTINGS else None


def _is_setting(name: str, value: object) -> bool:
    if not 0 < len(name) <= _LONGEST_NAME:
        return False
    return len(value) <= _LONGEST_VALUE if isinstance(value, str) else isinstance(value, (bool, int, float))


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise SettingError(name, text, "a whole number") from None
