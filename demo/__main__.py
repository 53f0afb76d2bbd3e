"""The demonstration: ``python -m demo``. Exit status 0 when all was seen that must be seen, else 1."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from demo.live.driver import run
from demo.live.show import PIPED_WIDTH, Screen
from demo.live.stage import StageError
from emulator.errors import EmulatorError

OUTPUT = Path(__file__).resolve().parents[1] / "demo-output"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Three recorded jobs on the deployed stack")
    parser.add_argument("--keep", action="store_true", help="leave the emulator running at the end, to look around")
    keep = parser.parse_args().keep
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    screen = Screen(console)
    try:
        seen = run(folder=OUTPUT, screen=screen, keep=keep)
    except (EmulatorError, StageError) as error:
        screen.say(f"{error}\nLogs: {OUTPUT}", "bold red")
        return 1
    except KeyboardInterrupt:
        screen.say("interrupted")
        return 130
    if seen:
        screen.say("all was seen that was expected", "bold green")
        return 0
    screen.say(f"not all was seen that was expected; logs: {OUTPUT}", "bold red")
    return 1


if __name__ == "__main__":
    sys.exit(main())
