"""The Helm chart as Helm renders it, against Kubernetes' own schemas, and what it may do in a cluster."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.conftest import PYTHON
from tests.clusters.test_pods import answer

pytestmark = pytest.mark.tools

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = str(DEPLOY / "helm" / "trainguard-collector")
OUTPUT = {"output": "s3://my-profiles/jobs"}
INFORMATION = 1
ROLE = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/collector"}
FULL: dict[str, Any] = {
    **OUTPUT,
    "namespaces": ["nlp", "vision"],
    "tags": {"cluster": 'a "b"'},
    "settings": {"evaluate": "yes", "LowGPUUtilization_threshold_p95": 60},
    "region": "eu-west-1",
    "platform": "hyperpod-eks",
    "privileged": True,
    "runtimeClassName": "nvidia",
    "priorityClassName": "system-node-critical",
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "affinity": {"nodeAffinity": {}},
    "imagePullSecrets": [{"name": "key"}],
    "podLabels": {"team": "platform"},
    "podAnnotations": {"a": "b"},
    "env": [{"name": "TRAINGUARD_SPOOL_MB", "value": "512"}],
    "serviceAccount": {"annotations": ROLE},
}


def program(name: str, *arguments: Any) -> Any:
    call = [PYTHON, Path(__file__).with_name("programs.py")]
    text = json.dumps([name, arguments])
    return json.loads(subprocess.run(call, input=text, text=True, stdout=subprocess.PIPE, check=True).stdout)


def rendered(values: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    found = program("render", CHART, values)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for each in found["manifests"]:
        by_kind.setdefault(each["kind"], []).append(each)
    return by_kind


def test_manifests_are_valid_in_each_version_of_kubernetes() -> None:
    for values in (OUTPUT, FULL, {**OUTPUT, "serviceAccount": {"create": False, "name": "own"}}):
        manifests = program("render", CHART, values)["manifests"]
        for version in ("1.28.0", "1.33.0", "1.37.0"):
            assert program("validate", manifests, version) == []
    linted = program("lint", CHART, OUTPUT)
    assert [each for each in linted["messages"] if each["severity"] > INFORMATION] + linted["errors"] == []
    example = list(yaml.safe_load_all((DEPLOY / "kubernetes/job-with-collector.yaml").read_text()))
    assert program("validate", example, "1.37.0") == []


def test_sampler_may_list_pods_and_nothing_else() -> None:
    everywhere, named = rendered(OUTPUT), rendered(FULL)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    assert [each["rules"] for each in everywhere["ClusterRole"]] == [rules]
    assert [(each["metadata"]["namespace"], each["rules"]) for each in named["Role"]] == [
        ("nlp", rules),
        ("vision", rules),
    ]
    assert "ClusterRole" not in named
    for found in (everywhere, named):
        pod = found["DaemonSet"][0]["spec"]["template"]["spec"]
        bindings = found.get("ClusterRoleBinding", []) + found.get("RoleBinding", [])
        subjects = {(each["namespace"], each["name"]) for binding in bindings for each in binding["subjects"]}
        assert subjects == {("monitoring", pod["serviceAccountName"])}
        hosts = [each for each in pod["volumes"] if "hostPath" in each]
        (container,) = pod["containers"]
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        assert all(mounts[each["name"]]["readOnly"] for each in hosts)
        assert container["securityContext"]["readOnlyRootFilesystem"]
    plain = everywhere["DaemonSet"][0]["spec"]["template"]["spec"]["containers"][0]["securityContext"]
    assert (plain["capabilities"], plain["allowPrivilegeEscalation"]) == ({"drop": ["ALL"]}, False)


def test_variables_are_those_that_the_collector_reads() -> None:
    pod = rendered(FULL)["DaemonSet"][0]["spec"]["template"]["spec"]
    found = {each["name"]: each.get("value") for each in pod["containers"][0]["env"]}
    assert json.loads(str(found["TRAINGUARD_TAGS"])) == FULL["tags"]
    assert json.loads(str(found["TRAINGUARD_SETTINGS"])) == FULL["settings"]
    assert (found["TRAINGUARD_NAMESPACES"], found["TRAINGUARD_SPOOL_MB"]) == ("nlp,vision", "512")
    sources = "".join(path.read_text() for path in (DEPLOY.parent / "collector").rglob("*.py"))
    assert [name for name in found if name.startswith("TRAINGUARD_") and name not in sources] == []
    assert rendered(FULL)["ServiceAccount"][0]["metadata"]["annotations"] == ROLE


@pytest.mark.parametrize(
    "values",
    [{}, {"output": "my-profiles"}, {**OUTPUT, "intervalMs": 7}, {**OUTPUT, "typo": 1}, {**OUTPUT, "tags": {"a": 1}}],
)
def test_unusable_values_are_refused_before_an_installation(values: dict[str, Any]) -> None:
    assert "error" in program("render", CHART, values)


def test_kubelet_is_asked_for_the_gpus_of_pods(tmp_path: Path) -> None:
    packages = str(DEPLOY.parent / "collector")
    found = program("kubelet", str(tmp_path / "kubelet.sock"), packages, answer().hex())
    assert found == [["nlp", "idle", []], ["nlp", "train-0", ["5", "GPU-a1", "GPU-b1"]]]


def test_linters_find_no_fault_in_image_units_and_modules(tmp_path: Path) -> None:
    run = subprocess.run([PYTHON.with_name("hadolint"), DEPLOY / "image/Dockerfile"], stdout=subprocess.PIPE)
    assert (run.returncode, run.stdout) == (0, b"")
    (tmp_path / "training.service").write_text("[Service]\nExecStart=/bin/true\n")
    units = []
    for path in (DEPLOY / "hosts/systemd").glob("*.service"):
        units.append(tmp_path / path.name.replace("@", "@training"))
        units[-1].write_text(path.read_text().replace("=/opt/trainguard/", "=/bin/true /opt/trainguard/"))
    check = ["systemd-analyze", "verify", *map(str, units)]
    if shutil.which(check[0]):
        run = subprocess.run(check, stderr=subprocess.PIPE)
        assert (run.returncode, run.stderr) == (0, b"")
    stack, role = (program("parse", str(DEPLOY / "terraform" / each / "main.tf")) for each in ("", "collector"))
    kinds = [next(iter(each)).strip('"') for each in stack["resource"]]
    assert kinds == ["aws_s3_object", "aws_s3_object", "aws_cloudformation_stack"]
    assert len(role["resource"]) == 3
    assert program("parse", str(DEPLOY / "terraform/variables.tf"))["variable"]
