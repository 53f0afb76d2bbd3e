"""``make release``: builds a release into ``build/release``, with the context values that the command line gives."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from infra.config import DeploymentConfigError
from infra.context import of_command_line
from infra.places import PROJECT_ROOT
from infra.release.folder import ReleaseError, write_release

FOLDER = PROJECT_ROOT / "build" / "release"


def main(arguments: Sequence[str]) -> int:
    """Build the release and print its place; return 0, or 2 when a setting or the package is at fault."""
    parser = argparse.ArgumentParser(prog="make release", description="Build a release.", allow_abbrev=False)
    parser.add_argument("-c", "--context", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--out", type=Path, default=FOLDER, metavar="FOLDER", help="default: build/release")
    known = parser.parse_args(arguments)
    try:
        folder = write_release(known.out, of_command_line(known.context, PROJECT_ROOT / "cdk.json"))
    except (DeploymentConfigError, ReleaseError) as fault:
        sys.stderr.write(f"make release: {fault}\n")
        return 2
    sys.stdout.write(f"{folder}\n{folder}.zip\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
