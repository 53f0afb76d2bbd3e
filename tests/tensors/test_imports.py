"""What a function imports that evaluates no tensors: the grammar of names and the state, and not protobuf."""

import subprocess
import sys

LIGHT = (
    "debug.keys",
    "debug.json_files",
    "debug.ledger",
    "scalars.names",
    "scalars.rows",
    "scalars.step",
)


def test_names_and_state_import_no_protobuf_and_no_checksum() -> None:
    modules = ", ".join(f"trainguard.formats.tensors.{name}" for name in LIGHT)
    heavy = "sorted({name.split('.')[0] for name in sys.modules} & {'google', 'google_crc32c'})"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; before = {heavy}; import {modules}; print(set({heavy}) - set(before))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"
