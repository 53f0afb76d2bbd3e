"""Pack unpacked cases into the recording: ``python -m tests.parity.record CASES OUT``.

A case is a folder with ``profiler-output/``, ``params.json`` and ``expected/<Rule>.json``.
"""

import argparse
import json
from pathlib import Path

from tests.parity.recording import Case, pack


def read_case(folder: Path) -> Case:
    """Read one case's folder."""
    root = folder / "profiler-output"
    return Case(
        name=folder.name,
        settings=json.loads((folder / "params.json").read_text()),
        files={path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()},
        expected={path.stem: json.loads(path.read_text()) for path in sorted((folder / "expected").glob("*.json"))},
    )


def main() -> None:
    """Read all cases of a folder and write their recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    cases = [read_case(folder) for folder in sorted(arguments.cases.iterdir()) if folder.is_dir()]
    arguments.out.write_bytes(pack(cases))


if __name__ == "__main__":
    main()
