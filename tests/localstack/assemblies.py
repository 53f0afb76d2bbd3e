"""Writes all that is deployed here, in one process: to start CDK takes longer than to synthesise a stack.

``python -m tests.localstack.assemblies FOLDER SECRET`` says the name of each place in ``FOLDER`` when it is written.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).parents[2]
STACK, CENTRAL, RELEASE = "stack", "central", "release"
# What the command that makes the release prints.
SAID = "release.txt"

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    # Waits until an assembly is written, and returns its place.
    Written = Callable[[str], Path]

MAX_STOPS_PER_HOUR = 100
_EMULATED = {"emulator": "true"}


@contextmanager
def being_written(folder: Path, secret: str) -> Iterator[Written]:
    """Let the assemblies be written for the time of a ``with`` block; ``secret`` is the ARN of the webhook's."""
    command = [sys.executable, "-m", "tests.localstack.assemblies", str(folder), secret]
    written = set()
    errors = folder / "errors.txt"
    with (
        errors.open("w") as said,
        subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=said, text=True) as process,
    ):
        assert process.stdout is not None

        def wait(name: str) -> Path:
            while name not in written:
                line = process.stdout.readline()  # type: ignore[union-attr]  # it has a pipe
                assert line, errors.read_text(encoding="utf-8")[-3000:]
                written.add(line.strip())
            return folder / name

        yield wait
        process.terminate()


def main(folder: Path, secret: str) -> None:
    from infra import app  # noqa: PLC0415 -- aws_cdk takes seconds, and only this process needs it
    from infra.central import __main__ as central  # noqa: PLC0415 -- likewise
    from infra.release import __main__ as release  # noqa: PLC0415 -- likewise

    stops = {"max_stops_per_hour": MAX_STOPS_PER_HOUR, "stop_batch_jobs": True, "stop_instances": True}
    webhook = {"webhook_secret": secret, "webhook_service": "pagerduty"}
    canary = {"canary_image": "111122223333.dkr.ecr.us-east-1.amazonaws.com/sleeper:1"}
    app.synthesise(str(folder / STACK), {**_EMULATED, **stops, **webhook, **canary})
    _say(STACK)
    central.synthesise(
        str(folder / CENTRAL), {**_EMULATED, "organization_id": "o-a1b2c3d4e5", "max_stops_per_hour": "1"}
    )
    _say(CENTRAL)
    with redirect_stdout(io.StringIO()) as said:
        assert release.main(["-c", "emulator=true", "-c", "retain_data=false", "--out", str(folder / RELEASE)]) == 0
    (folder / SAID).write_text(said.getvalue(), encoding="utf-8")
    _say(RELEASE)


def _say(name: str) -> None:
    sys.stdout.write(f"{name}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
