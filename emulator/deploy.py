"""Deploys a synthesised cloud assembly to the emulator with the CDK command line."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from emulator import commands
from emulator.errors import DeployError
from emulator.launch import Emulator

CDK: Final = Path(__file__).parent.parent / "node_modules" / ".bin" / "cdk"
QUICK_POLLS: Final = Path(__file__).with_name("quick_polls.cjs")
TIMEOUT_S: Final = 300.0

# jsii prints a banner for every Node release that it no longer tests, unless this variable names the release.
_UNTESTED_NODES: Final = "16,18,19,20,21,23,25"

# CDK's default qualifier, and the version of the bootstrap stack that the pinned command line brings.
_QUALIFIER: Final = "hnb659fds"
_BOOTSTRAP_VERSION: Final = "33"

_DIFFERENT: Final = re.compile(r"Number of stacks with differences: (\d+)")


def deploy(
    emulator: Emulator,
    *,
    assembly: Path,
    home: Path,
    stacks: Sequence[str] = (),
    app: str | None = None,
) -> dict[str, str]:
    """Deploy stacks, all if empty, and return their outputs: name of the output → value.

    `assembly` is the folder of ``cdk synth``, which the command `app` writes unless None; `home` is private to the
    command line. Raises DeployError, which names the resources that failed, and why.
    """
    bootstrap(emulator)
    outputs = home / "outputs.json"
    source = ["--app", str(assembly)] if app is None else ["--app", app, "--output", str(assembly)]
    options = ["--require-approval", "never", "--method", "direct", "--progress", "events"]
    _cdk(
        emulator,
        ["deploy", *(stacks or ["--all"]), *source, *options, "--outputs-file", str(outputs)],
        home=home,
    )
    by_stack: dict[str, dict[str, str]] = json.loads(outputs.read_text(encoding="utf-8"))
    return {name: value for values in by_stack.values() for name, value in values.items()}


def destroy(emulator: Emulator, *, assembly: Path, home: Path, stacks: Sequence[str] = ()) -> None:
    """Destroy stacks of an assembly; all if `stacks` is empty. Raises DeployError."""
    _cdk(emulator, ["destroy", *(stacks or ["--all"]), "--app", str(assembly), "--force"], home=home)


def differences(emulator: Emulator, *, assembly: Path, home: Path) -> int:
    """Return how many stacks differ from what is deployed, as ``cdk diff`` counts them; raises DeployError."""
    said = _cdk(emulator, ["diff", "--all", "--app", str(assembly), "--method", "template"], home=home)
    counted = _DIFFERENT.search(said)
    if counted is None:
        raise DeployError(f"cdk diff did not say how many stacks differ:\n{said[-3000:]}")
    return int(counted[1])


def bootstrap(emulator: Emulator) -> None:
    """Create what the command line wants to find in an account: the bucket for assets and the version parameter.

    ``cdk bootstrap`` would also make roles and a repository for images, which the emulator does not need.
    """
    bucket = f"cdk-{_QUALIFIER}-assets-{emulator.account}-{emulator.region}"
    emulator.client("s3").create_bucket(Bucket=bucket)
    emulator.client("ssm").put_parameter(
        Name=f"/cdk-bootstrap/{_QUALIFIER}/version", Value=_BOOTSTRAP_VERSION, Type="String", Overwrite=True
    )


def _cdk(emulator: Emulator, arguments: list[str], *, home: Path) -> str:
    if not CDK.exists():
        raise DeployError(f"{CDK}: the CDK command line is not installed; run `npm ci`")
    home.mkdir(parents=True, exist_ok=True)
    environment = emulator.environment() | {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "NODE_OPTIONS": f"--require {json.dumps(str(QUICK_POLLS))}",
        "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION": _UNTESTED_NODES,
        "CDK_DISABLE_CLI_TELEMETRY": "true",
    }
    command = [str(CDK), *arguments, "--no-notices", "--no-version-reporting", "--no-color", "--no-lookups"]
    try:
        result = commands.run(command, environment=environment, folder=home, timeout_s=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DeployError(f"cdk {arguments[0]}: not done after {TIMEOUT_S:.0f} s{_failures(emulator)}") from error
    said = result.stdout + result.stderr
    if result.returncode != 0:
        raise DeployError(
            f"cdk {arguments[0]} ended with {result.returncode}{_failures(emulator)}\n{said.strip()[-3000:]}"
        )
    return said


def _failures(emulator: Emulator) -> str:
    cloudformation = emulator.client("cloudformation")
    lines = []
    for stack in cloudformation.describe_stacks()["Stacks"]:
        if stack["StackStatus"] == "DELETE_COMPLETE":
            continue
        events: list[dict[str, Any]] = cloudformation.describe_stack_events(StackName=stack["StackId"])["StackEvents"]
        lines += [
            f"\n  {stack['StackName']}/{event['LogicalResourceId']} ({event.get('ResourceType', 'unknown type')}): "
            f"{event['ResourceStatus']}: {event.get('ResourceStatusReason', 'no reason given')}"
            for event in reversed(events)
            if event["ResourceStatus"].endswith("FAILED")
        ]
    return "".join(lines)
