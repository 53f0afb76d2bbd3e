"""The environment in which LocalStack runs here, each setting with its reason."""

import os
from pathlib import Path

ACCOUNT = "000000000000"
REGION = "us-east-1"
_INHERITED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "SSL_CERT_FILE")


def localstack_environment(
    *,
    port: int,
    state_dir: Path,
    python: Path,
    lambda_python: Path,
    lambda_runtime: Path,
    minute_s: float,
    longest_wait_s: int | None = None,
) -> dict[str, str]:
    """Return LocalStack's variables; for the last two arguments see `running_emulator`."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    if longest_wait_s is not None:
        inherited["TRAINGUARD_LONGEST_WAIT_S"] = str(longest_wait_s)
    return inherited | {
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(state_dir / "home"),
        # Unpacked functions go here. Python reads TEMP too, and LocalStack warns of TMPDIR.
        "TEMP": str(state_dir / "tmp"),
        "FILESYSTEM_ROOT": str(state_dir / "root"),
        "GATEWAY_LISTEN": f"127.0.0.1:{port}",
        # Addresses that LocalStack hands out, of queues above all, need no name server.
        "LOCALSTACK_HOST": f"127.0.0.1:{port}",
        "SQS_ENDPOINT_STRATEGY": "path",
        # Nothing is sent to, or fetched from, anyone.
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",
        "LAMBDA_RUNTIME_EXECUTOR": "trainguard-process",
        "TRAINGUARD_LAMBDA_PYTHON": str(lambda_python),
        "TRAINGUARD_LAMBDA_RUNTIME": str(lambda_runtime),
        "TRAINGUARD_END_WITH_STDIN": "1",
        "TRAINGUARD_MINUTE_S": str(minute_s),
        # Queues are polled often, so that a test does not wait for the poll: full speed when busy, 1 s when idle.
        "LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC": "0.05",
        "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "1",
        # A warm function stays warm for a minute; starting one costs its imports.
        "LAMBDA_KEEPALIVE_MS": "60000",
        # A failed event is tried again after 1 and 2 s, not minutes; nor is one dropped at its first throttling because
        # a minute more would make it too old.
        "LAMBDA_RETRY_BASE_DELAY": "1",
    }
