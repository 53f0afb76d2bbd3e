"""The command ``trainguard``, and ``python -m trainguard``."""

import importlib
import sys

_LIBRARIES = frozenset({"boto3", "botocore", "rich", "typer"})


def main() -> None:
    """Run the command line; without the libraries of the extra ``cli``, name the extra that brings them."""
    try:
        command_line = importlib.import_module("trainguard.cli.main")
    except ModuleNotFoundError as missing:
        if missing.name not in _LIBRARIES:
            raise
        sys.stderr.write(
            f"trainguard: the command line needs {missing.name}, which is not installed. "
            "Install the extra: pip install 'trainguard[cli]'\n"
        )
        sys.exit(2)
    command_line.run()


if __name__ == "__main__":
    main()
