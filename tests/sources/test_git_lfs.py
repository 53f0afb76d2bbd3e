"""Pointers of Git LFS in the place of any file that is read: named, with the command that fetches it."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.run_folder import MemoryFiles
from trainguard.cli.main import app
from trainguard.core.errors import UnusableError
from trainguard.formats.git_lfs import is_pointer
from trainguard.formats.profile.system import read_system_object
from trainguard.formats.runs.wandb.run_file import read_run_file
from trainguard.formats.tensors.debug.json_files import decode_collections, decode_index
from trainguard.formats.tensors.frames import payload_length
from trainguard.formats.tensors.scalars.bulk import read_scalars
from trainguard.formats.tensors.scalars.trainer_files import read_history, read_trainer_state
from trainguard.kernels.readers.reading import read_any
from trainguard.local.sources import open_folder

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 41234\n"
READERS: dict[str, Callable[[], object]] = {
    "events": lambda: read_scalars(MemoryFiles({"e": POINTER}), "e"),
    "trainer_state": lambda: read_trainer_state("trainer_state.json", POINTER),
    "table": lambda: read_history("metrics.csv", POINTER),
    "log": lambda: read_history("train.log", POINTER),
    "W&B": lambda: read_run_file("run.wandb", BytesIO(POINTER)),
    "trace": lambda: read_any("trace.json", lambda: BytesIO(POINTER)),
    "index of tensors": lambda: decode_index(0, "worker_0", POINTER),
    "collections of tensors": lambda: decode_collections("worker_0", POINTER),
    "tensors": lambda: payload_length("e", POINTER[:12]),
    "system metrics": lambda: read_system_object("k", POINTER, node="algo-1", minute=0),
}


@pytest.mark.parametrize("kind", READERS)
def test_pointer_is_named_with_the_command(kind: str) -> None:
    with pytest.raises(UnusableError, match=r"is a pointer of Git LFS, .* run `git lfs pull`"):
        READERS[kind]()


def test_pointer_to_a_database_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    file.write_bytes(POINTER)
    with pytest.raises(UnusableError, match="run `git lfs pull`"):
        open_folder(str(file))


@pytest.mark.parametrize("name", ["data.csv", "x.jsonl", "events.out.tfevents.1.h", "trainer_state.json", "out.txt"])
def test_folder_with_a_pointer_gives_no_all_clear(tmp_path: Path, name: str) -> None:
    (tmp_path / "history.csv").write_text("step,loss\n" + "".join(f"{step},{2 / (step + 1)}\n" for step in range(40)))
    healthy = CliRunner().invoke(app, ["analyze", str(tmp_path)]).output
    (tmp_path / name).write_bytes(POINTER)
    said = CliRunner().invoke(app, ["analyze", str(tmp_path)]).output
    assert "git lfs pull" in said
    assert "healthy" in healthy
    assert "Training was healthy" not in said


def test_text_that_only_begins_alike_is_no_pointer() -> None:
    assert not is_pointer(b"version 1\nloss: 2\n")
    assert not is_pointer(b"vers")
