"""A pod as the API describes it: which job it is of, when that runs there, and how it ended."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Optional

from trainguard_collector.kubernetes.api import epoch_of
from trainguard_collector.names import ACCOUNT_TAG, USER_TAG, Identity, job_name, node_name

Body = Mapping[str, Any]

# Annotations of a pod; `COLLECT` is "true" or "false".
COLLECT, JOB, NODES = "trainguard/collect", "trainguard/job", "trainguard/nodes"
USER, SETTINGS, TAGS = "trainguard/user", "trainguard/settings", "trainguard/tags"

_ACCELERATOR = re.compile(r"nvidia\.com/(?:gpu|mig-.+)(?:\.shared)?|amd\.com/gpu|aws\.amazon\.com/neuron\w*")
# Labels with a job's name, and that with its UID, the outermost first: a JobSet has Jobs.
_LABELS = (
    ("jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/jobset-uid"),
    ("ray.io/originated-from-cr-name", None),
    ("ray.io/cluster", None),
    ("training.kubeflow.org/job-name", None),
    ("leaderworkerset.sigs.k8s.io/name", None),
    ("volcano.sh/job-name", None),
    ("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
    ("job-name", "controller-uid"),
)
_QUEUES = ("kueue.x-k8s.io/queue-name", "volcano.sh/queue-name")
_INDEXES = (
    "jobset.sigs.k8s.io/job-index",
    "batch.kubernetes.io/job-completion-index",
    "training.kubeflow.org/replica-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
)
# Their pods serve: they end with no job.
_SERVING = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet"})
# So many that no annotation is found whose name is that of another namespace's job.
_DIGEST_SHOWN, _NAME_SHOWN = 16, 46
# Names of pods are up to 253 characters long, those of nodes 64.
_LONGEST_NODE, _NODE_SHOWN = 64, 47
# Of labels that are tags of the job.
_MOST_TAGS = 50
_STOPPED = frozenset({"Evicted", "Preempting", "Shutdown", "NodeShutdown", "Terminated"})
_UID = re.compile(r"[0-9a-f][0-9a-f-]{7,63}")
_SIGNALS_FROM = 128


def uid_of(pod: Body) -> str:
    return str(pod.get("metadata", {}).get("uid", ""))


def place_of(pod: Body) -> "tuple[str, str]":
    """Return namespace and name."""
    metadata = pod.get("metadata", {})
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))


def annotations_of(pod: Body) -> "dict[str, str]":
    return dict(pod.get("metadata", {}).get("annotations") or {})


def identity_of(pod: Body, platform: str) -> Optional[Identity]:
    """Return names of the pod's job and node; None for a pod that is not sampled.

    It is sampled if it has accelerators, serves nothing, and has no collector of its own; its annotation goes first.
    """
    metadata, annotations = pod.get("metadata", {}), annotations_of(pod)
    labels = dict(metadata.get("labels") or {})
    named = _named_by(labels)
    owners: list[Body] = [each for each in metadata.get("ownerReferences") or () if each.get("controller")]
    owner = owners[0] if owners else {}
    wanted = annotations.get(COLLECT)
    serves = named is None and owner.get("kind") in _SERVING
    if wanted == "false" or (wanted != "true" and (serves or not _has_accelerators(pod))) or _has_collector(pod):
        return None
    namespace, name = place_of(pod)
    job, uid = named or (str(owner.get("name") or name), None)
    if uid is None and (named is None or owner.get("name") == job):
        uid = str(owner.get("uid") or uid_of(pod))
    if annotations.get(JOB):
        job, uid = annotations[JOB], None
    indexes = [int(labels[each]) for each in _INDEXES if str(labels.get(each, "")).isdecimal()]
    nodes = annotations.get(NODES) or next(_values(pod, "PET_NNODES"), "")
    own = dict(sorted((label, value) for label, value in labels.items() if "/" not in label)[:_MOST_TAGS])
    user = annotations.get(USER)
    return Identity(
        # The same on each node. With the namespace in it, no pod gets into the job of another namespace.
        job_name(f"{job_name(job)[:_NAME_SHOWN]}-{_digest(f'{namespace}/{job}/{uid}')}"),
        node_name(name) if len(name) <= _LONGEST_NODE else f"{node_name(name[:_NODE_SHOWN])}-{_digest(name)}",
        # Only the first node is looked for.
        max(indexes, default=None),
        int(nodes) if nodes.isdecimal() and int(nodes) else None,
        platform=platform,
        queue=next((labels[each] for each in _QUEUES if labels.get(each)), None),
        submitted={**own, ACCOUNT_TAG: namespace, **({USER_TAG: user[:256]} if user else {})},
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_SHOWN]


def _named_by(labels: Mapping[str, str]) -> "Optional[tuple[str, Optional[str]]]":
    for name, uid in _LABELS:
        if labels.get(name):
            return labels[name], None if uid is None else labels.get(uid)
    return None


def _containers(pod: Body) -> "list[Body]":
    return list(pod.get("spec", {}).get("containers") or ())


def _has_accelerators(pod: Body) -> bool:
    limits = [(each.get("resources") or {}).get("limits") or {} for each in _containers(pod)]
    claims = [(each.get("resources") or {}).get("claims") for each in _containers(pod)]
    named = [name for each in limits for name, amount in each.items() if str(amount) != "0"]
    return any(claims) or any(_ACCELERATOR.fullmatch(name) for name in named)


def _values(pod: Body, variable: str) -> Iterator[str]:
    for container in _containers(pod):
        for each in container.get("env") or ():
            if each.get("name") == variable:
                yield str(each.get("value") or "")


def _has_collector(pod: Body) -> bool:
    return any(True for _ in _values(pod, "TRAINGUARD_OUTPUT"))


def needs_gpus_named(pod: Body) -> bool:
    """Whether the kubelet names the pod's devices by UUIDs that NVML knows."""
    limits = [(each.get("resources") or {}).get("limits") or {} for each in _containers(pod)]
    return not any(name.startswith(("amd.com/", "aws.amazon.com/")) for each in limits for name in each)


def began_at(pod: Body) -> Optional[float]:
    """Return when the pod's first container began, epoch seconds; None while none runs."""
    states = [each.get("state") or {} for each in pod.get("status", {}).get("containerStatuses") or ()]
    times = [epoch_of(each["running"].get("startedAt")) for each in states if isinstance(each.get("running"), dict)]
    return min((each for each in times if each is not None), default=None)


def ended_by(pod: Body) -> Optional[str]:
    """Return the sampler's word for how a pod has ended: ``exit 0``, ``signal 9``, ``stopped``; None before."""
    status = pod.get("status", {})
    phase = status.get("phase")
    if phase == "Succeeded":
        return "exit 0"
    if phase != "Failed":
        return None
    if pod.get("metadata", {}).get("deletionTimestamp") or status.get("reason") in _STOPPED:
        return "stopped"
    conditions = status.get("conditions") or ()
    if any(each.get("type") == "DisruptionTarget" and each.get("status") == "True" for each in conditions):
        return "stopped"
    ends = [(each.get("state") or {}).get("terminated") or {} for each in status.get("containerStatuses") or ()]
    codes = [int(each.get("exitCode") or 0) for each in ends]
    code = next((each for each in codes if each), 1)
    return f"signal {code - _SIGNALS_FROM}" if code > _SIGNALS_FROM else f"exit {code}"


def group_paths(pod: Body) -> "list[str]":
    """Return where the pod's control group may lie: of the kubelet's drivers ``systemd`` and ``cgroupfs``."""
    uid = uid_of(pod)
    if not _UID.fullmatch(uid):
        return []
    quality = str(pod.get("status", {}).get("qosClass", "")).lower()
    quality = quality if quality in {"burstable", "besteffort"} else ""
    name = f"kubepods-{quality}" if quality else "kubepods"
    between = f"kubepods-{quality}.slice/" if quality else ""
    plain = f"kubepods/{quality}/pod{uid}" if quality else f"kubepods/pod{uid}"
    return [f"kubepods.slice/{between}{name}-pod{uid.replace('-', '_')}.slice", plain]
