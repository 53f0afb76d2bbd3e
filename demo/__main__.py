"""The demonstration: ``python -m demo``. Exit status 0 when all was seen that must be seen, else 1."""

import argparse
import sys
from functools import partial

from demo.live.driver import run
from demo.live.show import performed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description="Three recorded jobs on the deployed stack")
    parser.add_argument("--keep", action="store_true", help="leave the emulator running at the end, to look around")
    return performed(partial(run, keep=parser.parse_args().keep))


if __name__ == "__main__":
    sys.exit(main())
