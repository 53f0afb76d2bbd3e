"""The collector's demonstration: ``python -m demo.collect``. Exit status 0 when all was seen that must be, else 1."""

import sys
from pathlib import Path

from rich.console import Console

from demo.collect.run import run
from demo.live.show import PIPED_WIDTH, Screen
from demo.live.stage import StageError
from emulator.errors import EmulatorError

OUTPUT = Path(__file__).resolve().parents[2] / "demo-output"


def main() -> int:
    screen = Screen(Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH))
    try:
        seen = run(folder=OUTPUT, screen=screen)
    except (EmulatorError, StageError) as error:
        screen.say(f"{error}\nLogs: {OUTPUT}", "bold red")
        return 1
    except KeyboardInterrupt:
        screen.say("interrupted")
        return 130
    screen.say("all was seen that was expected" if seen else f"not all was seen; logs: {OUTPUT}", "bold")
    return 0 if seen else 1


if __name__ == "__main__":
    sys.exit(main())
