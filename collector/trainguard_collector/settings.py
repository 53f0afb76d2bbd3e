"""The collector's settings, from options, arguments of ``start`` and the environment; and what the job runs on."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Optional, cast

from trainguard_collector.names import Identity

# On EC2 it holds the instance's id.
ASSET_TAG = Path("/sys/devices/virtual/dmi/id/board_asset_tag")

MOST_INSTANCES = 64
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
_TYPE = re.compile(r"[a-z0-9-]{2,20}\.[a-z0-9-]{2,20}")
_BATCH_JOB = re.compile(r"[A-Za-z0-9-]{1,64}(:[0-9]{1,5})?")
_CLUSTER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_WORKLOAD = re.compile(r"(job|kueue)/[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}|slurm/[0-9]{1,10}")
# Under these, instances belong to a cluster and not to a job.
_SHARED = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST")

# By these, nodes may find one job's name.
_NAMING = ("TRAINGUARD_JOB", "TORCHELASTIC_RUN_ID", "GROUP_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def find_resources(
    environment: Mapping[str, str], identity: Identity, *, asset_tag: Path = ASSET_TAG
) -> "Optional[dict[str, Any]]":
    """Return the field ``resources`` of ``job.json``; empty where nothing is known, None for what is unusable.

    ``TRAINGUARD_RESOURCES``, JSON or instances with commas, goes first. A job of several nodes never runs on this
    instance alone: all are stopped, or none.
    """
    given = environment.get("TRAINGUARD_RESOURCES", "").strip()
    if given:
        return _given(given)
    if identity.in_sagemaker:
        return {}
    job = environment.get("AWS_BATCH_JOB_ID", "").split("#")[0]
    if job:
        return {"batch_job": job} if _BATCH_JOB.fullmatch(job) else {}
    # Alone: nodes are counted, or no other node could have found the job's name.
    uncounted = identity.nodes is None and not any(environment.get(name) for name in _NAMING)
    if any(name in environment for name in _SHARED) or not (identity.nodes == 1 or uncounted):
        return {}
    instance = _own_instance(asset_tag)
    return {} if instance is None else {"instances": [instance]}


def _own_type(asset_tag: Path) -> Optional[str]:
    """Return the instance's type, which EC2 writes where other makers write the product's name."""
    try:
        found = asset_tag.with_name("product_name").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return found if _own_instance(asset_tag) is not None and _TYPE.fullmatch(found) else None


def _own_instance(asset_tag: Path) -> Optional[str]:
    try:
        instance = asset_tag.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return instance if _INSTANCE.fullmatch(instance) else None


def _given(text: str) -> "Optional[dict[str, Any]]":
    try:
        found = json.loads(text) if text.startswith("{") else {"instances": [each.strip() for each in text.split(",")]}
    except ValueError:
        return None
    if set(found) == {"batch_job"}:
        job = found["batch_job"]
        return found if isinstance(job, str) and _BATCH_JOB.fullmatch(job) else None
    if set(found) == {"cluster", "workload"}:
        parts = ((found["cluster"], _CLUSTER), (found["workload"], _WORKLOAD))
        return found if all(isinstance(each, str) and form.fullmatch(each) for each, form in parts) else None
    instances = found.get("instances")
    if set(found) != {"instances"} or not isinstance(instances, list) or not 0 < len(instances) <= MOST_INSTANCES:
        return None
    return found if all(isinstance(each, str) and _INSTANCE.fullmatch(each) for each in instances) else None


INTERVALS_MS = (100, 200, 500, 1_000, 5_000, 60_000)
DEFAULT_INTERVAL_MS = 500
DEFAULT_SPOOL_MB = 256
SMALLEST_SPOOL_MB = 16
_MOST_SETTINGS, _LONGEST_NAME, _LONGEST_VALUE = 200, 128, 256
# Digits of epoch seconds, and the longest limit that the stack takes: Slurm has a far end for a job without one.
_LONGEST_TIME, _NO_LIMIT_S = 12, 366 * 86_400


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
    # When what is observed began, epoch seconds; None for the sampler's own start.
    began_at: Optional[float] = None

    job_settings: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    resources: dict[str, Any] = field(default_factory=dict)
    platform: Optional[str] = None
    queue: Optional[str] = None
    # On a node of several jobs: the job's GPUs, where below ``cgroup`` its group may lie, a process in its network.
    gpus: list[str] = field(default_factory=list)
    cgroup_paths: list[str] = field(default_factory=list)
    network_of: Optional[int] = None
    # Whether only a word of the parent ends the job: without one, another sampler goes on.
    is_told: bool = False
    # Whether dumps and stacks of a standstill are wanted.
    with_hangs: bool = True

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        fields = json.loads(text)
        return cls(**{**fields, "identity": Identity(**fields["identity"])})


def read_settings(
    environment: Mapping[str, str],
    identity: Identity,
    *,
    output: Optional[str] = None,
    interval_ms: Optional[int] = None,
) -> Optional[Settings]:
    """Return the settings; an argument goes before its variable. None without an output. Raises SettingError."""
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
        instance_type=environment.get("TRAINGUARD_INSTANCE_TYPE") or identity.instance_type or _own_type(ASSET_TAG),
        procfs=environment.get("TRAINGUARD_PROCFS", "/proc"),
        cgroup=environment.get("TRAINGUARD_CGROUP", "/sys/fs/cgroup"),
        finish_s=float(_whole(environment, "TRAINGUARD_FINISH_S", 20)),
        job_settings={
            **_time_limit(environment),
            **_named(environment, "TRAINGUARD_SETTINGS", '{"LowGPUUtilization_window_s": 120}'),
        },
        tags=_named(environment, "TRAINGUARD_TAGS", '{"owner": "vision"}', texts=True),
        resources=resources,
        platform=_short(environment, "TRAINGUARD_PLATFORM") or identity.platform or _on_ec2(),
        queue=_short(environment, "TRAINGUARD_QUEUE") or identity.queue,
        with_hangs=_switch(environment, "TRAINGUARD_HANGS"),
        gpus=[each.strip() for each in environment.get("TRAINGUARD_GPUS", "").split(",") if each.strip()],
        cgroup_paths=[each.strip("/") for each in environment.get("TRAINGUARD_CGROUP_PATH", "").split(":") if each],
    )


def _time_limit(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return how long Slurm lets the job run, from its start; nothing of one without a limit."""
    began, ends = (environment.get(f"SLURM_JOB_{each}_TIME", "") for each in ("START", "END"))
    if not (began.isdecimal() and ends.isdecimal() and max(len(began), len(ends)) <= _LONGEST_TIME):
        return {}
    seconds = int(ends) - int(began)
    return {"time-limit": f"{seconds}s"} if 0 < seconds < _NO_LIMIT_S else {}


_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def default_spool() -> str:
    """Return the folder of this user's spools: for temporary files, else the home folder where another user owns it."""
    folder = Path(tempfile.gettempdir(), f"trainguard-collector-{os.getuid()}")
    with suppress(OSError):
        folder.mkdir(mode=0o700)
    try:
        found = folder.lstat()
    except OSError:
        return str(folder)
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & _OTHERS_MAY_WRITE
    return str(folder if private else Path.home() / ".cache" / "trainguard-collector")


def _named(environment: Mapping[str, str], name: str, example: str, *, texts: bool = False) -> dict[str, Any]:
    """Return settings or tags of a job outside SageMaker, which has no tags: names and values of ``job.json``."""
    text = environment.get(name, "")
    with suppress(ValueError):
        found = json.loads(text) if text else {}
        is_short = isinstance(found, dict) and len(found) <= _MOST_SETTINGS
        kinds = (str,) if texts else (str, bool, int, float)
        if is_short and all(isinstance(value, kinds) and _is_setting(each, value) for each, value in found.items()):
            return cast("dict[str, Any]", found)
    raise SettingError(name, text[:100], f"a JSON object {'of texts ' if texts else ''}such as {example}")


def _is_setting(name: str, value: object) -> bool:
    if not 0 < len(name) <= _LONGEST_NAME:
        return False
    return len(value) <= _LONGEST_VALUE if isinstance(value, str) else isinstance(value, (bool, int, float))


def _on_ec2() -> Optional[str]:
    return None if _own_instance(ASSET_TAG) is None else "ec2"


def _short(environment: Mapping[str, str], name: str) -> str:
    text = environment.get(name, "")
    if len(text) > _LONGEST_NAME:
        raise SettingError(name, text[:100], f"at most {_LONGEST_NAME} characters")
    return text


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name) or "1"
    if text not in ("0", "1"):
        raise SettingError(name, text[:100], "0 or 1")
    return text == "1"


def _whole(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise SettingError(name, text, "a whole number") from None
