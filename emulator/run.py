"""Runs the emulator in the foreground for people: ``python -m emulator.run``; Ctrl-C ends it."""

import signal
import sys
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

from emulator.errors import EmulatorError
from emulator.launch import Emulator, running_emulator


def main() -> int:
    """Start the emulator, print what to export, and wait for the end."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: ended.set())
    with TemporaryDirectory(prefix="trainguard-emulator-") as folder:
        state = Path(folder)
        try:
            with running_emulator(
                state_dir=state, lambda_python=Path(sys.executable), log=state / "localstack.log"
            ) as emulator:
                sys.stdout.write(describe(emulator))
                sys.stdout.flush()
                ended.wait()
        except EmulatorError as error:
            sys.stderr.write(f"emulator.run: {error}\n")
            return 1
    return 0


def describe(emulator: Emulator) -> str:
    """Return what a person needs to use `emulator`: where it is, its log, and lines for the shell."""
    exports = "".join(f"export {name}={value}\n" for name, value in emulator.environment().items())
    log = f"# log: {emulator.log}\n" if emulator.log else ""
    return f"# {emulator.version} at {emulator.endpoint}; Ctrl-C ends it\n{log}{exports}"


if __name__ == "__main__":
    sys.exit(main())
