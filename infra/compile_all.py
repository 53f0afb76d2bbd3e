"""Compiles modules for the layer on the functions' Python; imports nothing of the project: Pyodide gets this file."""

import compileall
import py_compile
import sys

SITE_OF_THE_FUNCTIONS = "/opt/python"


def main(folder: str, python_version: str) -> int:
    """Write the bytecode of every module below a folder beside it; return 1 and print what is wrong if a part fails."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    if running != python_version:
        sys.stdout.write(f"this is Python {running}, the functions run on {python_version}\n")
        return 1
    done = compileall.compile_dir(
        folder,
        quiet=1,
        force=True,
        stripdir=folder,
        prependdir=SITE_OF_THE_FUNCTIONS,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
