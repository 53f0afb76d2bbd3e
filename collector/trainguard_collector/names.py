"""The names of job and node, from what started them: SageMaker, AWS Batch, Slurm, Kubernetes, torchrun or MPI."""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional, TypeVar

T = TypeVar("T", "dict[str, Any]", "list[str]")

RESOURCE_CONFIG = Path("/opt/ml/input/config/resourceconfig.json")

# Variables with the number of a process among all of its job's.
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_LOCAL_RANK", "SLURM_LOCALID")
_ROLE = re.compile(r"-(?:master|worker|launcher|replica)(?:-(?P<index>\d{1,4}))?$")
_NUMBER = re.compile(r"-(?P<index>\d{1,4})$")
# Tags of whom a scheduler names: the last that count for a job's user and team.
USER_TAG, ACCOUNT_TAG = "submitted-by", "scheduler-account"
# Kubernetes appends five of these characters to the names of pods.
_SUFFIX = re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{5}$")


@dataclass(frozen=True)
class Identity:
    """Who writes: ``index`` is the node's number from 0 where it is known, and ``nodes`` how many the job has.

    ``attempt`` counts from 1 how often the job was started under its name, where what starts it says so. ``platform``
    is what runs the job, ``queue`` where it waited there; ``submitted`` are tags that say for whom.
    """

    job: str
    node: str
    index: Optional[int] = None
    nodes: Optional[int] = None
    in_sagemaker: bool = False
    instance_type: Optional[str] = None
    attempt: Optional[int] = None
    platform: Optional[str] = None
    queue: Optional[str] = None
    submitted: "dict[str, str]" = field(default_factory=dict)


# The parent of a node's ranks: when it was started (epoch seconds), and its process id.
Launcher = tuple[float, int]


def is_first_process_of_node(environment: Mapping[str, str]) -> bool:
    """Whether no launcher says that this is another than its node's first process: one sampler a node is enough."""
    return all(environment.get(name, "0") == "0" for name in _LOCAL_RANKS)


def identify(
    environment: Mapping[str, str],
    *,
    hostname: Optional[str] = None,
    resource_config: Path = RESOURCE_CONFIG,
    launcher: Optional[Launcher] = None,
) -> Identity:
    """Return the names of job and node; a job without a name has that of its host, a time and a process id."""
    host = hostname or socket.gethostname()
    found = _sagemaker(environment, host, resource_config)
    for source in (_batch, _slurm, _kubernetes, _torchrun, _mpi):
        found = found or source(environment, host)
    found = found or Identity("", host)
    at, pid = launcher or launched_by(environment) or (time.time(), os.getpid())
    nameless = f"{host[:36]}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(at))}-{pid}"
    job = environment.get("TRAINGUARD_JOB") or found.job or nameless
    return replace(found, job=job_name(job), node=node_name(environment.get("TRAINGUARD_NODE") or found.node))


def launched_by(environment: Mapping[str, str]) -> Optional[Launcher]:
    """Return the common parent of a node's ranks, which stands for the job's start; None without one."""
    if not any(name in environment for name in _LOCAL_RANKS):
        return None
    try:
        import psutil

        parent = psutil.Process(os.getppid())
        return float(parent.create_time()), parent.pid
    except Exception:
        return None


def job_name(text: str) -> str:
    """Return a job's name as SageMaker would take it: letters, digits and hyphens, at most 63."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:63].strip("-") or "job"


def node_name(text: str) -> str:
    """Return a node's name: letters, digits, dots and hyphens, at most 64."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[:64].strip("-.") or "node"


def _sagemaker(environment: Mapping[str, str], host: str, resource_config: Path) -> Optional[Identity]:
    job = environment.get("TRAINING_JOB_NAME") or _json(environment.get("SM_TRAINING_ENV", ""), dict).get("job_name")
    if not job:
        return None
    try:
        resources: dict[str, Any] = _json(resource_config.read_text("utf-8"), dict)
    except (OSError, UnicodeDecodeError):
        resources = {}
    node = environment.get("SM_CURRENT_HOST") or resources.get("current_host") or host
    hosts = _json(environment.get("SM_HOSTS", ""), list) or resources.get("hosts") or [node]
    kind = environment.get("SM_CURRENT_INSTANCE_TYPE") or resources.get("current_instance_type")
    index = hosts.index(node) if node in hosts else None
    return Identity(str(job), str(node), index, len(hosts), True, str(kind) if kind else None)


def _batch(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    job = environment.get("AWS_BATCH_JOB_ID")
    if not job:
        return None
    index = _number(environment.get("AWS_BATCH_JOB_NODE_INDEX"))
    node = host if index is None else f"node-{index}"
    nodes = _number(environment.get("AWS_BATCH_JOB_NUM_NODES")) or 1
    return Identity(
        job.split("#")[0],
        node,
        index,
        nodes,
        attempt=_number(environment.get("AWS_BATCH_JOB_ATTEMPT")),
        platform="batch",
        queue=environment.get("AWS_BATCH_JQ_NAME"),
    )


def _slurm(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    number = environment.get("SLURM_JOB_ID")
    if not number:
        return None
    name = environment.get("SLURM_JOB_NAME", "")[: 62 - len(number)]
    node = environment.get("SLURMD_NODENAME") or host
    # The batch script alone has node 0 and none of the others: srun is what starts a task on each.
    index = _number(environment.get("SLURM_NODEID"))
    nodes = _number(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_JOB_NUM_NODES"))
    attempt = (_number(environment.get("SLURM_RESTART_COUNT")) or 0) + 1
    submitted = {USER_TAG: environment.get("SLURM_JOB_USER"), ACCOUNT_TAG: environment.get("SLURM_JOB_ACCOUNT")}
    return Identity(
        f"{name}-{number}" if name else f"slurm-{number}",
        node,
        index,
        nodes,
        attempt=attempt,
        platform="slurm",
        queue=environment.get("SLURM_JOB_PARTITION"),
        submitted={tag: value for tag, value in submitted.items() if value},
    )


def _kubernetes(environment: Mapping[str, str], host: str) -> Optional[Identity]:
    if "KUBERNETES_SERVICE_HOST" not in environment:
        return None
    pod = environment.get("POD_NAME") or environment.get("HOSTNAME") or host
    job, index = _pod(pod, environment)
    ranks = _torchrun(environment, host)
    nodes = ranks.nodes if ranks is not None else None
    return Identity(job, pod, index, nodes, platform="kubernetes")


def _pod(pod: str, environment: Mapping[str, str]) -> "tuple[str, Optional[int]]":
    """Return the job that a pod's name says, and the pod's number in it.

    ``<job>-<number>-<suffix>`` is a pod of an indexed Job of that ``JOB_COMPLETION_INDEX``. A number at the end counts
    after the name of a role, or where there are several pods: else it distinguishes runs.
    """
    job = _SUFFIX.sub("", pod)
    completed = _number(environment.get("JOB_COMPLETION_INDEX"))
    if completed is not None:
        return job.removesuffix(f"-{completed}"), completed
    role = _ROLE.search(job)
    if role is not None:
        return job[: role.start()], _number(role["index"])
    number = _NUMBER.search(job) if job == pod and _has_peers(environment) else None
    return (job, None) if number is None else (job[: number.start()], _number(number["index"]))


def _has_peers(environment: Mapping[str, str]) -> bool:
    """Return whether a pod is one of several, which a world of ranks of one pod is not."""
    world = _number(environment.get("WORLD_SIZE")) or 0
    local = _number(environment.get("LOCAL_WORLD_SIZE")) or 1
    groups = (environment.get("GROUP_WORLD_SIZE"), environment.get("PET_NNODES"))
    return world > local or any((_number(each) or 0) > 1 for each in groups)


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


def _json(text: str, kind: "type[T]") -> "T":
    """Return what a text has as JSON, where it is of the kind; else an empty one."""
    try:
        found = json.loads(text)
    except ValueError:
        return kind()
    return found if isinstance(found, kind) else kind()


_PROGRAM, _MODULES = "torchrun", ("torch.distributed.run", "torch.distributed.launch", "torchrun")
_FLAGS = frozenset({
    "-h", "--help", "-m", "--module", "--no-python", "--run-path", "--standalone", "--virtual-local-rank",
})  # fmt: skip


def with_torchrun(environment: Mapping[str, str], words: Sequence[str]) -> "dict[str, str]":
    """Return the environment with the variables of torchrun's ranks, for the node on which its command line runs.

    The environment goes before ``words``; options go before ``PET_…`` variables, as for torchrun itself.
    """
    arguments = _arguments(words)
    if arguments is None:
        return dict(environment)
    options = _options(arguments)

    def environment_or(name: str, default: str) -> str:
        return options.get(f"--{name}") or environment.get(f"PET_{name.replace('-', '_').upper()}") or default

    alone = "--standalone" in options
    nodes = _size("1" if alone else environment_or("nnodes", "1"))
    found = {"TORCHELASTIC_RUN_ID": "none" if alone else environment_or("rdzv-id", "none")}
    if nodes is not None:
        found["GROUP_WORLD_SIZE"] = str(nodes)
    rank = "0" if nodes == 1 else environment_or("node-rank", "")
    if rank.isdecimal():
        found["GROUP_RANK"] = rank
    return {**found, **environment}


def _arguments(words: Sequence[str]) -> Optional[Sequence[str]]:
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
    """Return None where the number of nodes may change."""
    least, _, most = text.partition(":")
    return int(least) if least.isdecimal() and most in ("", least) and int(least) > 0 else None


def command_line() -> "list[str]":
    """Return the words of this process; ``sys.argv`` is not there yet."""
    words = list(getattr(sys, "orig_argv", ()))
    if not words:
        with suppress(OSError):
            words = [os.fsdecode(each) for each in Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]]
    return words
