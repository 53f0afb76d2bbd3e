"""Starts the emulator, waits until it answers, and stops it without leaving a process behind."""

import contextlib
import datetime
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from emulator import commands
from emulator.errors import StartError
from emulator.install import install
from emulator.settings import ACCOUNT, REGION, localstack_environment

EXTERNAL_VARIABLE = "LOCALSTACK_ENDPOINT"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
_CLIENT_CONFIG = Config(s3={"addressing_style": "path"}, connect_timeout=5, read_timeout=90)


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator; ``log`` is None for an external one, ``minute_s`` the seconds between scheduler runs."""

    endpoint: str
    version: str
    log: Path | None = None
    minute_s: float = 60.0
    region: str = REGION
    account: str = ACCOUNT

    def client(self, service: str) -> Any:
        return _client(self, service)

    def resource(self, service: str) -> Any:
        return _resource(self, service)

    def environment(self) -> dict[str, str]:
        """Return the variables with which any AWS SDK or tool, in a subprocess, talks to the emulator alone."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.account,
            "AWS_SECRET_ACCESS_KEY": "emulator",
            "AWS_DEFAULT_REGION": self.region,
            "AWS_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def finish_training_job(self, name: str, *, status: str = "Completed", reason: str | None = None) -> None:
        """End a running training job as if its training had ended, ``Completed`` or ``Failed`` for a ``reason``."""
        query = urllib.parse.urlencode({"status": status} | ({"reason": reason} if reason else {}))
        job = urllib.parse.quote(name, safe="")
        _http(f"{self.endpoint}/_trainguard/training-jobs/{job}/finish?{query}", method="POST")

    def backdate_training_job(self, name: str, *, began: datetime.datetime) -> None:
        """Let the training job that is created next under this name have begun at ``began``, a time with its zone."""
        query = urllib.parse.urlencode({"began": began.isoformat()})
        job = urllib.parse.quote(name, safe="")
        _http(f"{self.endpoint}/_trainguard/training-jobs/{job}/backdate?{query}", method="POST")

    def sagemaker_calls(self, *, action: str, job: str) -> list[dict[str, Any]]:
        """Return the SageMaker calls that the embedded emulator got, in order.

        Each has ``action``, ``job``, ``time`` (ISO 8601) and ``error``: a code if the call was refused, else None.
        """
        query = urllib.parse.urlencode({"action": action, "job": job})
        calls: list[dict[str, Any]] = _http(f"{self.endpoint}/_trainguard/calls?{query}")["calls"]
        return calls


# Who waits asks many times a second: making a client takes longer than its answer.
@cache
def _client(emulator: Emulator, service: str) -> Any:
    return _session(emulator).client(service, endpoint_url=emulator.endpoint, config=_CLIENT_CONFIG)


@cache
def _resource(emulator: Emulator, service: str) -> Any:
    return _session(emulator).resource(service, endpoint_url=emulator.endpoint, config=_CLIENT_CONFIG)


@cache
def _session(emulator: Emulator) -> Any:
    variables = emulator.environment()
    return boto3.Session(
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        region_name=emulator.region,
    )


@contextlib.contextmanager
def running_emulator(
    *, state_dir: Path, lambda_python: Path, log: Path, minute_s: float = 60.0, longest_wait_s: int | None = None
) -> Iterator[Emulator]:
    """Run the emulator for the time of a ``with`` block; an external one of ``LOCALSTACK_ENDPOINT`` is only used.

    `state_dir` is made if missing, and not removed. Functions see only the standard library of `lambda_python`. Less
    than 60 seconds of `minute_s`, from one run of the scheduler to the next, makes tests faster, as does an end of each
    Wait state after `longest_wait_s`. Raises InstallError when the environment cannot be made; StartError, with the
    tail of the log, when the emulator does not answer.
    """
    external = os.environ.get(EXTERNAL_VARIABLE)
    if external:
        yield Emulator(endpoint=external.rstrip("/"), version=_external_version(external.rstrip("/")))
        return
    python, lambda_runtime = install()
    for folder in ("home", "tmp", "root"):
        (state_dir / folder).mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    environment = localstack_environment(
        port=port,
        state_dir=state_dir.resolve(),
        lambda_python=lambda_python.absolute(),
        python=python,
        lambda_runtime=lambda_runtime,
        minute_s=minute_s,
        longest_wait_s=longest_wait_s,
    )
    with log.open("wb") as output:
        process = commands.start([python, "-m", "localstack.runtime.main"], environment=environment, output=output)
        try:
            endpoint = f"http://127.0.0.1:{port}"
            version = _await(endpoint, process, log)
            yield Emulator(endpoint=endpoint, version=version, log=log, minute_s=minute_s)
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _http(url: str, *, method: str = "GET", timeout_s: float = 10.0) -> Any:
    request = urllib.request.Request(url, method=method)  # noqa: S310 -- the emulator's own http address
    with urllib.request.urlopen(request, timeout=timeout_s) as response:  # noqa: S310 -- likewise
        return json.load(response)


def _version(endpoint: str, *, timeout_s: float) -> str:
    health = _http(f"{endpoint}/_localstack/health", timeout_s=timeout_s)
    edition = "" if health["edition"] == "unknown" else f" ({health['edition']})"
    return f"LocalStack {health['version']}{edition}"


def _external_version(endpoint: str) -> str:
    try:
        return _version(endpoint, timeout_s=10.0)
    except (OSError, ValueError, KeyError) as error:
        raise StartError(
            f"{EXTERNAL_VARIABLE}={endpoint}: no LocalStack answers there ({error}); "
            "start it, or unset the variable to use the embedded emulator"
        ) from error


def _await(endpoint: str, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise StartError(f"LocalStack ended with {process.returncode} while starting; {log} ends:\n{_tail(log)}")
        # Until the gateway listens, connections are refused or cut; the deadline bounds how long that may last.
        with contextlib.suppress(OSError, ValueError, KeyError):
            return _version(endpoint, timeout_s=2.0)
        time.sleep(0.05)
    raise StartError(f"LocalStack at {endpoint} did not answer in {START_TIMEOUT_S:.0f} s; {log} ends:\n{_tail(log)}")


def _tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
