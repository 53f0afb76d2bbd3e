"""Which job a pod is of, whether it is sampled, how it ended, and which GPUs the kubelet gave to it."""

from typing import Any

import pytest

from trainguard.engine.jobs.job_file import read_job_file
from trainguard.engine.settings.tag_names import owners_of
from trainguard_collector.ending import job_file
from trainguard_collector.kubernetes.devices import read_answer
from trainguard_collector.kubernetes.pods import began_at, ended_by, group_paths, identity_of
from trainguard_collector.settings import read_settings

UID = "0f3b6c1e-5a41-4a8e-9d1f-2f7f5f6f7a01"
GPUS = {"nvidia.com/gpu": "8"}


def pod(
    labels: dict[str, str] | None = None,
    owner: tuple[str, str] | None = ("Job", "train"),
    limits: dict[str, str] = GPUS,
    env: dict[str, str] | None = None,
    *,
    namespace: str = "nlp",
    name: str = "train-0-x7k2p",
    status: dict[str, Any] | None = None,
    **annotations: str,
) -> dict[str, Any]:
    variables = [{"name": key, "value": value} for key, value in (env or {}).items()]
    owners = [] if owner is None else [{"kind": owner[0], "name": owner[1], "uid": "c-1", "controller": True}]
    metadata = {"namespace": namespace, "name": name, "uid": UID, "labels": labels or {}, "ownerReferences": owners}
    metadata["annotations"] = {f"trainguard/{key}": value for key, value in annotations.items()}
    container = {"name": "main", "resources": {"limits": limits}, "env": variables}
    return {"metadata": metadata, "spec": {"containers": [container]}, "status": status or {}}


def job_of(found: dict[str, Any]) -> str:
    identity = identity_of(found, "kubernetes")
    assert identity is not None
    return identity.job


JOBSET = {"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/jobset-uid": "u-1", "job-name": "llm-workers-0"}


@pytest.mark.parametrize(
    ("found", "job"),
    [
        (pod(), "train"),
        (pod({"batch.kubernetes.io/job-name": "bert", "batch.kubernetes.io/controller-uid": "c-1"}), "bert"),
        (pod(JOBSET, ("Job", "llm-workers-0")), "llm"),
        (pod({"training.kubeflow.org/job-name": "pt"}, ("PyTorchJob", "pt")), "pt"),
        (pod({"ray.io/cluster": "rj-raycluster-x", "ray.io/originated-from-cr-name": "rj"}, ("RayCluster", "x")), "rj"),
        (pod({"leaderworkerset.sigs.k8s.io/name": "lws"}, ("StatefulSet", "lws-0")), "lws"),
        (pod({"volcano.sh/job-name": "vc"}, ("Job", "vc")), "vc"),
        (pod(owner=None, name="alone"), "alone"),
        (pod(job="My run/7"), "My-run-7"),
    ],
)
def test_labels_of_each_operator_name_the_job(found: dict[str, Any], job: str) -> None:
    name, _, digest = job_of(found).rpartition("-")
    assert (name, len(digest)) == (job, 16)


def test_pods_of_one_run_have_one_name_and_no_others_do() -> None:
    workers = [pod(JOBSET, ("Job", f"llm-workers-{index}"), name=f"llm-workers-{index}-0") for index in range(2)]
    assert len({job_of(each) for each in workers}) == 1
    again = pod({**JOBSET, "jobset.sigs.k8s.io/jobset-uid": "u-2"}, ("Job", "llm-workers-0"))
    elsewhere = pod(JOBSET, ("Job", "llm-workers-0"), namespace="vision")
    assert len({job_of(each) for each in (workers[0], again, elsewhere)}) == 3
    named = [pod(job="mine", namespace=namespace) for namespace in ("nlp", "vision")]
    assert job_of(named[0]) != job_of(named[1]), "no annotation reaches into another namespace's job"
    assert job_of(named[0]) == job_of(pod(owner=None, name="other", job="mine"))


def test_pods_with_long_names_are_nodes_of_their_own() -> None:
    names = [f"{'llm-' * 20}worker-{index}" for index in range(3)]
    nodes = {identity.node for name in names if (identity := identity_of(pod(name=name), "kubernetes"))}
    assert len(nodes) == 3
    assert max(map(len, nodes)) <= 64


@pytest.mark.parametrize(
    ("found", "is_sampled"),
    [
        (pod(limits={"cpu": "4"}), False),
        (pod(limits={"nvidia.com/gpu": "0"}), False),
        (pod(limits={"nvidia.com/mig-1g.5gb": "1"}), True),
        (pod(limits={"aws.amazon.com/neuroncore": "2"}), True),
        (pod(owner=("ReplicaSet", "serve-7f")), False),
        (pod(owner=("ReplicaSet", "serve-7f"), collect="true"), True),
        (pod(limits={}, collect="true"), True),
        (pod(collect="false"), False),
        (pod(env={"TRAINGUARD_OUTPUT": "s3://b"}), False),
        ({}, False),
    ],
)
def test_pods_with_accelerators_that_serve_nothing_are_sampled(found: dict[str, Any], is_sampled: bool) -> None:
    assert (identity_of(found, "kubernetes") is not None) == is_sampled


def test_job_file_of_a_pod_has_queue_owner_and_size() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "h100", "project": "search", "batch.kubernetes.io/job-completion-index": "1"}
    identity = identity_of(pod(labels, env={"PET_NNODES": "4"}, user="ann"), "hyperpod-eks")
    assert identity is not None
    settings = read_settings({"TRAINGUARD_OUTPUT": "s3://b"}, identity)
    assert settings is not None
    found = read_job_file("x", job_file(settings, 1.0, "InProgress"), None)
    assert (found.platform, found.queue, found.instance_count) == ("hyperpod-eks", "h100", 4)
    assert owners_of(found.tags, {}) == {"user": "ann", "team": "nlp", "project": "search"}
    assert (identity.node, identity.index) == ("train-0-x7k2p", 1)


def terminated(code: int, **more: Any) -> dict[str, Any]:
    return {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": code}}}], **more}


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Running"}, None),
        ({"phase": "Succeeded"}, "exit 0"),
        (terminated(3), "exit 3"),
        (terminated(137), "signal 9"),
        (terminated(0), "exit 1"),
        (terminated(143, reason="Evicted"), "stopped"),
        (terminated(143, conditions=[{"type": "DisruptionTarget", "status": "True"}]), "stopped"),
        ({"phase": "Failed"}, "exit 1"),
        ({}, None),
    ],
)
def test_pod_ends_with_the_word_of_its_containers(status: dict[str, Any], word: str | None) -> None:
    assert ended_by(pod(status=status)) == word


def test_job_begins_with_the_first_container() -> None:
    states = [
        {"state": {"waiting": {}}},
        {"state": {"running": {"startedAt": "2026-11-21T08:00:07Z"}}},
        {"state": {"running": {"startedAt": "2026-11-21T08:00:00Z"}}},
        {"state": {"running": {"startedAt": None}}},
    ]
    assert began_at(pod(status={"containerStatuses": states})) == 1795248000.0
    assert began_at(pod(status={"containerStatuses": states[:1]})) is None


@pytest.mark.parametrize(
    ("quality", "paths"),
    [
        ("Guaranteed", ["kubepods.slice/kubepods-pod{_}.slice", "kubepods/pod{-}"]),
        (
            "Burstable",
            ["kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{_}.slice", "kubepods/burstable/pod{-}"],
        ),
    ],
)
def test_group_lies_where_the_kubelet_puts_it(quality: str, paths: list[str]) -> None:
    expected = [each.replace("{_}", UID.replace("-", "_")).replace("{-}", UID) for each in paths]
    assert group_paths(pod(status={"qosClass": quality})) == expected
    assert group_paths({"metadata": {"uid": "../../etc"}}) == []


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return bytes([number << 3, value])
    assert len(value) < 128 * 128
    length = bytes([len(value)]) if len(value) < 128 else bytes([len(value) & 0x7F | 0x80, len(value) >> 7])
    return bytes([number << 3 | 2]) + length + value


def answer() -> bytes:
    devices = field(1, b"nvidia.com/gpu") + field(2, b"GPU-b1") + field(2, b"GPU-a1::3") + field(2, b"0000:17")
    claimed = field(1, field(1, b"nvidia.com/gpu=gpu-5")) + field(2, b"gpu.nvidia.com") + field(4, b"gpu-5")
    container = field(1, b"main") + field(2, devices) + field(3, 7) + field(5, field(4, claimed))
    first = field(1, b"train-0") + field(2, b"nlp") + field(3, container)
    return field(1, first) + field(1, field(1, b"idle") + field(2, b"nlp"))


def test_kubelet_names_gpus_of_devices_and_of_claims() -> None:
    assert read_answer(answer()) == {("nlp", "train-0"): ["5", "GPU-a1", "GPU-b1"], ("nlp", "idle"): []}
    assert read_answer(b"") == {}


@pytest.mark.parametrize("bad", [answer()[:-1], b"\xff" * 11, b"\x0b", b"\x0a\xff"])
def test_answer_that_is_cut_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=" of "):
        read_answer(bad)
