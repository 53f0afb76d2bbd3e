"""The workflows ask for no more than they need, and do what the documents say."""

import os
import re
import subprocess
from typing import Any

import pytest
import yaml

from infra.bundling import PROJECT_ROOT
from infra.release.folder import project_version

FOLDER = PROJECT_ROOT / ".github"
WORKFLOWS = sorted(each.stem for each in (FOLDER / "workflows").glob("*.yml"))


def read(name: str) -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load((FOLDER / "workflows" / f"{name}.yml").read_text("utf-8"))
    return document


def steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_given_a_workflow_when_read_then_what_runs_code_may_write_nothing_to_the_repository_and_ends_by_itself(
    name: str,
) -> None:
    workflow = read(name)
    allowed = {("contents", "read"), ("id-token", "write")}
    assert set(workflow["permissions"].items()) <= allowed
    assert all(job["timeout-minutes"] <= 90 for job in workflow["jobs"].values())
    writing = {job for job, body in workflow["jobs"].items() if "permissions" in body}
    assert writing == ({"publish"} if name == "release" else set())


@pytest.mark.parametrize("name", WORKFLOWS)
def test_given_a_workflow_when_read_then_each_action_is_one_commit_and_its_version_stands_beside_it(name: str) -> None:
    lines = (FOLDER / "workflows" / f"{name}.yml").read_text("utf-8").splitlines()
    used = [line.strip().removeprefix("- ") for line in lines if "uses:" in line]
    assert used
    assert [line for line in used if not re.fullmatch(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)] == []


def test_given_a_tag_when_released_then_it_is_tested_built_and_published_by_a_job_that_runs_none_of_its_code() -> None:
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


@pytest.mark.parametrize(("tag", "expected"), [(f"v{project_version()}", 0), ("v0.0.0", 1)])
def test_given_a_tag_when_it_is_not_the_version_then_it_is_refused(tag: str, expected: int) -> None:
    (refuse,) = (step["run"] for step in steps(read("release")) if step.get("name", "").startswith("Refuse"))
    done = subprocess.run(["/bin/bash", "-c", refuse], cwd=PROJECT_ROOT, env={**os.environ, "GITHUB_REF_NAME": tag})
    assert done.returncode == expected


def test_given_a_push_when_tested_then_ci_run_is_what_runs() -> None:
    commands = [step["run"] for step in steps(read("test")) if "run" in step]
    assert commands == ["bash .ci/run"]


def test_given_a_repository_without_a_role_when_the_deployment_is_due_then_it_does_not_run() -> None:
    workflow = read("deploy")
    assert all(job["if"] == "vars.AWS_DEPLOY_ROLE != ''" for job in workflow["jobs"].values())
    assert "pull_request" not in workflow[True]  # YAML reads the key `on` as true


def test_given_a_deployment_that_fails_when_it_ends_then_the_stack_is_destroyed_all_the_same() -> None:
    last = steps(read("deploy"))[-1]
    assert last["if"] == "always()"
    assert last["run"].startswith("make destroy")


def test_given_the_canarys_script_when_read_by_bash_then_it_is_bash() -> None:
    checked = subprocess.run(["/bin/bash", "-n", FOLDER / "canary.sh"], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")
