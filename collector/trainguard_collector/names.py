"""The names of job and node, from what started them: SageMaker, AWS Batch, Slurm, Kubernetes, torchrun or MPI."""

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

RESOURCE_CONFIG = Path("/opt/ml/input/config/resourceconfig.json")

_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID")
_POD_TAIL = re.compile(r"-(?:(?:master|worker|launcher|replica)-)?(?P<index>\d+)(?:-[a-z0-9]{5})?$|-[a-z0-9]{5}$")


@dataclass(frozen=True)
class Identity:
    """Who writes: ``index`` is the node's number from 0 where it is known, and ``nodes`` how many the job has."""

    job: str
    node: str
    index: Optional[int] = None
    nodes: Optional[int] = None
    in_sagemaker: bool = False
    instance_type: Optional[str] = None


def is_first_process_of_node(environment: Mapping[str, str]) -> bool:
    """Whether no launcher says that this is another than its node's first process: one sampler a node is enough."""
    return all(environment.get(name, "0") == "0" for name in _LOCAL_RANKS)


def identify(
    environment: Mapping[str, str],
    *,
    hostname: Optional[str] = None,
    resource_config: Path = RESOURCE_CONFIG,
    now: Optional[float] = None,
) -> Identity:
    """Return the names of job and node; ``TRAINGUARD_JOB`` and ``TRAINGUARD_NODE`` go before all else."""
    host = hostname or socket.gethostname()
    found = _sagemaker(environment, host, resource_config)
    for source in (_batch, _slurm, _kubernetes, _torchrun, _mpi):
        found = found or source(environment, host)
    found = found or Identity("", host)
    named = replace(
        found,
        job=environment.get("TRAINGUARD_JOB") or found.job or _nameless(host, now),
        node=environment.get("TRAINGUARD_NODE") or found.node,
    )
    return replace(named, job=job_name(named.job), node=node_name(named.node))


def launched_at(environment: Mapping[str, str]) -> Optional[float]:
    """Return when the launcher of a node's ranks was started (epoch seconds); None where ranks have no common parent.

    It stands for the job's start where the ranks of a node must find the same name, each by itself.
    """
    if not any(name in environment for name in _LOCAL_RANKS):
        return None
    try:
        import psutil

        return float(psutil.Process(os.getppid()).create_time())
    except Exception:
        return None


def job_name(text: str) -> str:
    """Return a job's name as SageMaker would take it: letters, digits and hyphens, at most 63."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:63].strip("-") or "job"


def node_name(text: str) -> str:
    """Return a node's name: letters, digits, dots and hyphens, at most 64."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:64].strip("-.") or "node"


def _nameless(host: str, now: Optional[float]) -> str:
    return f"{host[:40]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"


def _sagemaker(environment: Mapping[str, str], host: str, resource_config: Path) -> Optional[Identity]:
    job = environment.get("TRAINING_JOB_NAME") or _object(environment.get("SM_TRAINING_ENV", "")).get("job_name")
    if not job:
        return None
    try:
        resources = _object(resource_config.read_text("utf-8"))
    except (OSError, UnicodeDecodeError):
        resources = {}
    node = environment.get("SM_CURRENT_HOST") or resources.get("current_host") or host
    hosts = _list(environment.get("SM_HOSTS", "")) or resources.get("hosts") or [node]
    kind = environment.get("SM_CURRENT_INSTANCE_TYPE") or resources.get("current_instance_type")
    index = hosts.index(node) if node in hosts else None
    return Identity(str(job), str(node), index, len(hosts), True, str(kind) if kind else None)


def _batch(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    job = environment.get("AWS_BATCH_JOB_ID")
    if not job:
        return None
    index = _number(environment.get("AWS_BATCH_JOB_NODE_INDEX"))
    node = host if index is None else f"node-{index}"
    return Identity(job.split("#")[0], node, index, _number(environment.get("AWS_BATCH_JOB_NUM_NODES")) or 1)


def _slurm(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    number = environment.get("SLURM_JOB_ID")
    if not number:
        return None
    name = environment.get("SLURM_JOB_NAME", "")[: 62 - len(number)]
    node = environment.get("SLURMD_NODENAME") or host
    # The batch script alone has node 0 and none of the others: srun is what starts a task on each.
    index = _number(environment.get("SLURM_NODEID"))
    nodes = _number(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_JOB_NUM_NODES"))
    return Identity(f"{name}-{number}" if name else f"slurm-{number}", node, index, nodes)


def _kubernetes(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    pod = environment.get("POD_NAME") or environment.get("HOSTNAME") or host
    tail = _POD_TAIL.search(pod)
    index = _number(environment.get("JOB_COMPLETION_INDEX") or (tail and tail["index"]))
    ranks = _torchrun(environment, host)
    nodes = ranks.nodes if ranks is not None else None
    return Identity(pod[: tail.start()] if tail else pod, pod, index, nodes)


def _torchrun(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    if "GROUP_RANK" not in environment and "TORCHELASTIC_RUN_ID" not in environment:
        return None
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    index = _number(environment.get("GROUP_RANK"))
    return Identity("" if run == "none" else run, host, index, _number(environment.get("GROUP_WORLD_SIZE")))


def _mpi(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    if "OMPI_COMM_WORLD_RANK" not in environment and "PMI_RANK" not in environment:
        return None
    run = environment.get("PMIX_NAMESPACE") or environment.get("PMI_JOBID") or ""
    first = (environment.get("OMPI_COMM_WORLD_RANK") or environment.get("PMI_RANK")) == "0"
    size = _number(environment.get("OMPI_COMM_WORLD_SIZE"))
    local = _number(environment.get("OMPI_COMM_WORLD_LOCAL_SIZE"))
    nodes = -(-size // local) if size and local else None
    return Identity(f"mpi-{run}" if run else "", host, 0 if first else None, nodes)


def _number(text: Optional[str]) -> Optional[int]:
    return int(text) if text and text.isdecimal() else None


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _list(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    return found if isinstance(found, list) else []
