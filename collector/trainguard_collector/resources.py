"""What a job outside SageMaker runs on, as its ``job.json`` names it: a job of AWS Batch, or instances of EC2."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional

from trainguard_collector.names import Identity

ASSET_TAG = Path("/sys/devices/virtual/dmi/id/board_asset_tag")
"""On EC2 it holds the instance's id."""

MOST_INSTANCES = 64
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
_BATCH_JOB = re.compile(r"[A-Za-z0-9-]{1,64}(:[0-9]{1,5})?")
_SHARED = ("SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST")
"""Under these, instances belong to a cluster and not to a job."""

_NAMING = ("TRAINGUARD_JOB", "TORCHELASTIC_RUN_ID", "GROUP_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
"""By these, nodes may find one job's name."""


def find_resources(
    environment: Mapping[str, str], identity: Identity, *, asset_tag: Path = ASSET_TAG
) -> "Optional[dict[str, Any]]":
    """Return the field ``resources`` of ``job.json``; empty where nothing is known, None for what is unusable.

    ``TRAINGUARD_RESOURCES`` goes before all else: the field as JSON, or instances with commas between them. A job of
    several nodes, or of an unknown number, is never said to run on this instance alone: all are stopped, or none.
    """
    given = environment.get("TRAINGUARD_RESOURCES", "").strip()
    if given:
        return _given(given)
    if identity.in_sagemaker:
        return {}
    job = environment.get("AWS_BATCH_JOB_ID", "").split("#")[0]
    if job:
        return {"batch_job": job} if _BATCH_JOB.fullmatch(job) else {}
    if any(name in environment for name in _SHARED) or not _is_alone(environment, identity):
        return {}
    try:
        instance = asset_tag.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return {}
    return {"instances": [instance]} if _INSTANCE.fullmatch(instance) else {}


def _is_alone(environment: Mapping[str, str], identity: Identity) -> bool:
    """Whether the job has this node alone: its number is known, or no other node could have found the job's name."""
    return identity.nodes == 1 or (identity.nodes is None and not any(environment.get(name) for name in _NAMING))


def _given(text: str) -> "Optional[dict[str, Any]]":
    try:
        found = json.loads(text) if text.startswith("{") else {"instances": [each.strip() for each in text.split(",")]}
    except ValueError:
        return None
    if set(found) == {"batch_job"}:
        job = found["batch_job"]
        return found if isinstance(job, str) and _BATCH_JOB.fullmatch(job) else None
    instances = found.get("instances")
    if set(found) != {"instances"} or not isinstance(instances, list) or not 0 < len(instances) <= MOST_INSTANCES:
        return None
    return found if all(isinstance(each, str) and _INSTANCE.fullmatch(each) for each in instances) else None
