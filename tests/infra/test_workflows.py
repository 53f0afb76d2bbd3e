"""The workflows ask for no more than they need, and do what the documents say."""

import os
import re
import subprocess
import tomllib
from typing import Any

import pytest
import yaml

import trainguard
import trainguard_collector
from infra.overlay import AWS
from infra.places import PROJECT_ROOT
from infra.release.folder import project_version

FOLDER = PROJECT_ROOT / ".github"
PROJECTS = ("pyproject.toml", "collector/pyproject.toml")
WORKFLOWS = sorted(each.stem for each in (FOLDER / "workflows").glob("*.yml"))


def read(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((FOLDER / "workflows" / f"{name}.yml").read_text("utf-8"))
    return document


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_code_has_no_write_access_and_a_timeout(
    name: str,
) -> None:
    workflow = read(name)
    allowed = {("contents", "read"), ("id-token", "write")}
    assert set(workflow["permissions"].items()) <= allowed
    assert all(job["timeout-minutes"] <= 90 for job in workflow["jobs"].values())
    writing = {job for job, body in workflow["jobs"].items() if "permissions" in body}
    assert writing == ({"publish", "image", "chart", "pypi"} if name == "release" else set())


def test_deployed_python_is_the_newest_of_ci_and_emulator() -> None:
    def minor(version: str) -> int:
        return int(version.split(".")[1])

    deployed = minor(AWS.python_version)
    (tested,) = (job["strategy"]["matrix"]["python"] for job in read("test")["jobs"].values())
    plugin = tomllib.loads((PROJECT_ROOT / "emulator/plugin/pyproject.toml").read_text("utf-8"))
    least, below = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", plugin["project"]["requires-python"]).groups()  # type: ignore[union-attr]  # its form
    assert deployed == max(map(minor, tested)) == int(below) - 1 >= int(least)
    chosen = [
        step["with"]["python-version"]
        for name in WORKFLOWS
        for step in steps(read(name))
        if "with" in step and "python-version" in step["with"]
    ]
    assert set(chosen) == {AWS.python_version, "${{ matrix.python }}"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflow_actions_are_pinned_with_their_versions(name: str) -> None:
    lines = (FOLDER / "workflows" / f"{name}.yml").read_text("utf-8").splitlines()
    used = [line.strip().removeprefix("- ") for line in lines if "uses:" in line]
    assert used
    assert [line for line in used if not re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_release_is_published_by_a_job_without_its_code() -> None:
    workflow = read("release")
    assert workflow[True] == {"push": {"tags": ["v*"]}}
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    commands = [step["run"] for step in build["steps"] if "run" in step]
    assert commands[-2:] == ["bash .ci/run", "make release"]
    assert publish["permissions"] == {"contents": "write"}
    assert publish["needs"] == "build"
    used = [step["uses"].partition("@")[0] for step in publish["steps"] if "uses" in step]
    assert used == ["actions/download-artifact"]
    (attach,) = (step["run"] for step in publish["steps"] if "run" in step)
    assert attach.splitlines()[1].startswith('gh release create "$GITHUB_REF_NAME" --verify-tag ')


def test_a_tag_publishes_both_wheels_without_a_token() -> None:
    pypi = read("release")["jobs"]["pypi"]
    assert pypi["needs"] == "build"
    assert pypi["permissions"] == {"id-token": "write"}
    assert pypi["environment"]["name"] == "pypi-${{ matrix.project }}"
    named = [tomllib.loads((PROJECT_ROOT / file).read_text("utf-8"))["project"]["name"] for file in PROJECTS]
    chosen = pypi["strategy"]["matrix"]["include"]
    assert [each["project"] for each in chosen] == named
    assert [each["files"] for each in chosen] == [f"{name.replace('-', '_')}-*" for name in named]
    *_, publish = pypi["steps"]
    assert publish["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert "with" not in publish


def test_image_is_built_before_there_are_credentials() -> None:
    jobs = read("release")["jobs"]
    image, chart = jobs["image"], jobs["chart"]
    assert {each["processor"] for each in image["strategy"]["matrix"]["include"]} == {"amd64", "arm64"}
    assert [image["permissions"], chart["permissions"]] == [{"packages": "write"}] * 2
    commands = [step.get("run", "") for step in image["steps"]]
    (built,) = (number for number, command in enumerate(commands) if "docker build" in command)
    (logged_in,) = (number for number, command in enumerate(commands) if "docker login" in command)
    assert built < logged_in
    assert (image["needs"], chart["needs"]) == ("build", "image")


def test_the_versions_of_packages_chart_and_image_agree() -> None:
    version = project_version()
    deploy = PROJECT_ROOT / "deploy"
    chart = yaml.safe_load((deploy / "helm/trainguard-collector/Chart.yaml").read_text("utf-8"))
    assert {chart["version"], chart["appVersion"]} == {version}
    assert f"trainguard-collector:{version}\n" in (deploy / "kubernetes/job-with-collector.yaml").read_text("utf-8")
    declared = [tomllib.loads((PROJECT_ROOT / file).read_text("utf-8"))["project"]["version"] for file in PROJECTS]
    cited = yaml.safe_load((PROJECT_ROOT / "CITATION.cff").read_text("utf-8"))["version"]
    assert {*declared, cited, trainguard.__version__, trainguard_collector.__version__} == {version}
    assert f"\n## [{version}] - " in (PROJECT_ROOT / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.parametrize(("tag", "expected"), [(f"v{project_version()}", 0), ("v0.0.0", 1)])
def test_tag_other_than_the_version_is_refused(tag: str, expected: int) -> None:
    (refuse,) = (step["run"] for step in steps(read("release")) if step.get("name", "").startswith("Refuse"))
    done = subprocess.run(["/bin/bash", "-c", refuse], cwd=PROJECT_ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert done.returncode == expected


def test_given_a_push_when_tested_then_ci_run_is_what_runs() -> None:
    commands = [step["run"] for step in steps(read("test")) if "run" in step]
    assert commands == ["bash .ci/run"]


def test_deployment_is_skipped_without_a_role() -> None:
    workflow = read("deploy")
    assert all(job["if"] == "vars.AWS_DEPLOY_ROLE != ''" for job in workflow["jobs"].values())
    assert "pull_request" not in workflow[True]  # YAML reads the key `on` as true


def test_failed_deployment_is_destroyed() -> None:
    last = steps(read("deploy"))[-1]
    assert last["if"] == "always()"
    assert last["run"].startswith("make destroy")


def test_canary_script_is_valid_bash() -> None:
    checked = subprocess.run(["/bin/bash", "-n", FOLDER / "canary.sh"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
