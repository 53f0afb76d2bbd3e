"""Jobs, Kueue's workloads and nodes of Kubernetes, over its API with the pod's own account."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional
from urllib.parse import quote

from trainguard_collector.agent.resources import ChangedError, Request, Resource, Unit
from trainguard_collector.kubernetes.api import Api, epoch_of
from trainguard_collector.kubernetes.pods import annotations_of

# What owners write: an action, the training job that may ask for it, and anything that forbids it.
ON_FIRE, ON_FAULT = "trainguard/on-fire", "trainguard/on-fault"
JOB, EXEMPT = "trainguard/job", "trainguard/exempt"
# What the agent writes, in the same request as the action: it is done together or not at all.
ACTED = "trainguard/acted"

# https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-eks-resiliency-node-labels.html
_HEALTH = "sagemaker.amazonaws.com/node-health-status"
_LABELS = {
    "label": {"trainguard/gpu-fault": "true"},
    "replace": {_HEALTH: "UnschedulablePendingReplacement"},
    "reboot": {_HEALTH: "UnschedulablePendingReboot"},
}
_ON_NODES = (*_LABELS, "cordon")
_QUEUE, _JOB_UID = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/job-uid"


class Kubernetes:
    """See `Platform`; the whole cluster without ``namespaces``, and its nodes only ``with_nodes``."""

    def __init__(
        self, api: Api, namespaces: Sequence[str] = (), *, with_nodes: bool = False, kueue: str = "v1beta1"
    ) -> None:
        self._api, self._with_nodes = api, with_nodes
        self._jobs, self._workloads = "/apis/batch/v1", f"/apis/kueue.x-k8s.io/{kueue}"
        self._scopes = [f"/namespaces/{each}" for each in namespaces] or [""]

    def opted_in(self) -> "Iterator[Resource]":
        for scope in self._scopes:
            for job in self._api.items(f"{self._jobs}{scope}/jobs"):
                if _has_word(job):
                    yield self._job(job)
            for workload in self._api.items(f"{self._workloads}{scope}/workloads"):
                if _has_word(workload):
                    yield self._workload(workload, _full_name("kueue", workload), workload)
        if self._with_nodes:
            jobs = None
            for node in self._api.items("/api/v1/nodes"):
                if ON_FAULT in annotations_of(node):
                    jobs = self._jobs_by_owner() if jobs is None else jobs
                    yield self._node(node, self._pods_on(node["metadata"]["name"], jobs))

    def look(self, name: str) -> Optional[Resource]:
        kind, _, rest = name.partition("/")
        namespace, _, own = rest.partition("/")
        if kind == "node":
            node = self._api.get(f"/api/v1/nodes/{quote(rest, safe='')}") if self._with_nodes else None
            return None if node is None else self._node(node, self._pods_on(rest, self._jobs_by_owner()))
        if self._scopes != [""] and f"/namespaces/{namespace}" not in self._scopes:
            return None
        place = f"/namespaces/{quote(namespace, safe='')}"
        if kind == "job":
            job = self._api.get(f"{self._jobs}{place}/jobs/{quote(own, safe='')}")
            return None if job is None else self._job(job)
        if kind == "kueue":
            found = self._api.get(f"{self._workloads}{place}/workloads/{quote(own, safe='')}")
            return None if found is None else self._workload(found, name, found)
        return None

    def act(self, found: Resource, request: Request) -> None:
        path, metadata, spec = found.version
        mark = {**metadata, "annotations": {ACTED: request.id}}
        if found.action in _LABELS:
            change = {"metadata": {**mark, "labels": _LABELS[found.action]}}
        else:
            change = {"metadata": mark, "spec": spec}
        if not self._api.patch(path, change):
            raise ChangedError(path)

    def _job(self, job: "dict[str, Any]") -> Resource:
        """Return a Job; one that Kueue admits is held back by its workload, as Kueue would resume it otherwise."""
        name, metadata = _full_name("job", job), job["metadata"]
        if _QUEUE in (metadata.get("labels") or {}):
            place = f"{self._workloads}/namespaces/{metadata['namespace']}/workloads"
            for workload in self._api.items(place, labelSelector=f"{_JOB_UID}={metadata['uid']}"):
                return self._workload(workload, name, job)
        status, suspended = job.get("status") or {}, bool((job.get("spec") or {}).get("suspend"))
        return Resource(
            **_consent(job, ON_FIRE, ("suspend",)),
            name=name,
            status="suspended" if suspended else "active" if status.get("active") else "over or not begun",
            runs=bool(status.get("active")) and not suspended and not status.get("completionTime"),
            started_at=epoch_of(status.get("startTime")),
            job=annotations_of(job).get(JOB, ""),
            acted_by=annotations_of(job).get(ACTED),
            version=_version(f"{self._jobs}/namespaces/{metadata['namespace']}/jobs", job, {"suspend": True}),
        )

    def _workload(self, workload: "dict[str, Any]", name: str, owner: "dict[str, Any]") -> Resource:
        """Return a workload of Kueue; ``owner`` has the annotations: it, or its Job."""
        found = {each.get("type"): each for each in (workload.get("status") or {}).get("conditions") or ()}
        true = {kind for kind, each in found.items() if each.get("status") == "True"}
        active = (workload.get("spec") or {}).get("active") is not False
        place = f"{self._workloads}/namespaces/{workload['metadata']['namespace']}/workloads"
        return Resource(
            **_consent(owner, ON_FIRE, ("suspend",)),
            name=name,
            status="held back" if not active else "finished" if "Finished" in true else "admitted or waiting",
            runs=active and "Admitted" in true and "Finished" not in true,
            started_at=epoch_of((found.get("Admitted") or {}).get("lastTransitionTime")),
            job=annotations_of(owner).get(JOB, ""),
            acted_by=annotations_of(workload).get(ACTED),
            version=_version(place, workload, {"active": False}),
        )

    def _node(self, node: "dict[str, Any]", units: "tuple[Unit, ...]") -> Resource:
        ready = [each for each in (node.get("status") or {}).get("conditions") or () if each.get("type") == "Ready"]
        return Resource(
            **_consent(node, ON_FAULT, _ON_NODES),
            name=f"node/{node['metadata']['name']}",
            status="ready" if any(each.get("status") == "True" for each in ready) else "not ready",
            runs=True,
            started_at=epoch_of(node["metadata"].get("creationTimestamp")),
            acted_by=annotations_of(node).get(ACTED),
            version=_version("/api/v1/nodes", node, {"unschedulable": True}),
            units=units,
        )

    def _pods_on(self, node: str, jobs: "Mapping[str, str]") -> "tuple[Unit, ...]":
        """Return the pods on a node, since when, and the training job that the owner of each names."""
        pods = self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node},status.phase=Running")
        return tuple(
            (
                f"{pod['metadata']['namespace']}/{pod['metadata']['name']}",
                epoch_of(pod["status"].get("startTime")),
                next((jobs[owner] for owner in _owners(pod) if owner in jobs), None),
            )
            for pod in pods
        )

    def _jobs_by_owner(self) -> "dict[str, str]":
        """Return the training jobs that owners name, by the identity of what owns pods: a Job, or what Kueue admits."""
        found: dict[str, str] = {}
        owners: dict[str, list[str]] = {}
        for scope in self._scopes:
            for workload in self._api.items(f"{self._workloads}{scope}/workloads"):
                named = annotations_of(workload).get(JOB)
                found.update({owner: named for owner in _owners(workload) if named})
            for job in self._api.items(f"{self._jobs}{scope}/jobs"):
                own = job["metadata"].get("uid", "")
                owners[own] = _owners(job)
                if named := annotations_of(job).get(JOB):
                    found[own] = named
        for own, above in owners.items():
            named = next((found[each] for each in above if each in found), None)
            if named is not None:
                found.setdefault(own, named)
        return found


def _owners(found: "dict[str, Any]") -> "list[str]":
    return [each.get("uid", "") for each in found["metadata"].get("ownerReferences") or ()]


def _has_word(workload: "dict[str, Any]") -> bool:
    """Whether its owner allows an action, or names its job: that counts for its node."""
    return not {ON_FIRE, JOB}.isdisjoint(annotations_of(workload))


def _full_name(kind: str, found: "dict[str, Any]") -> str:
    return f"{kind}/{found['metadata']['namespace']}/{found['metadata']['name']}"


def _consent(found: "dict[str, Any]", key: str, actions: Sequence[str]) -> "dict[str, Any]":
    annotations = annotations_of(found)
    action = annotations.get(key, "")
    return {"action": action if action in actions else "", "exempt": EXEMPT in annotations}


def _version(
    place: str, found: "dict[str, Any]", spec: "dict[str, Any]"
) -> "tuple[str, dict[str, Any], dict[str, Any]]":
    """Return path, precondition and change: the server refuses a write of another object, or of a changed one."""
    metadata = found["metadata"]
    held = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
    return f"{place}/{quote(metadata['name'], safe='')}", held, spec
