"""A folder is read whatever bytes its files hold: no file ends the search, and none costs its neighbours."""

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import strategies as st

from tests.families.training.test_scalars import events
from tests.sources.test_nvidia_smi import FORMS, lines
from tests.support.fuzzing import damaged, search, short_and_long
from tests.support.run_folder import MemoryFiles
from trainguard.core.errors import NoProfileError, ProfileSourceError, TelemetryFormatError
from trainguard.formats.tensors.scalars.bulk import read_scalars
from trainguard.formats.tensors.scalars.names import ScalarNames
from trainguard.formats.tensors.scalars.trainer_files import is_history, read_history, read_trainer_state
from trainguard.local.api import analyze
from trainguard.local.places import recordings_of
from trainguard.local.runs import find_runs
from trainguard.local.training_files import training_of_job

TABLE = "".join(["epoch,loss,val_loss\n", *(f"{step},{2.0 / (step + 1)},{2.5 / (step + 1)}\n" for step in range(40))])
REAL = {
    "table": TABLE.encode(),
    "semicolons": TABLE.replace(",", ";").replace(".", ",").encode(),
    "utf-16": TABLE.encode("utf-16"),
    "utf-16 without a mark": TABLE.encode("utf-16-le"),
    "old mac": TABLE.replace("\n", "\r").encode(),
    "mark": TABLE.encode("utf-8-sig"),
    "without steps": b"loss,acc\n0.5,0.1\n0.4,0.2\n",
    "json lines": b"".join(b'{"step": %d, "loss": 0.5, "val": {"acc": 0.1}}\n' % step for step in range(20)),
    "state": b'{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": NaN}]}',
    "log": b"".join(b"iteration %d/ 100 | lm loss: 1.2E+00 | grad norm: 0.5 |\n" % step for step in range(20)),
    "events": events({step: 1.0 / (step + 1) for step in range(20)}, "loss"),
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    "nvidia-smi": (FORMS["usual"][0] + "".join(lines(FORMS["usual"][1]))).encode(),
    "nvidia-smi without header": "".join(lines(FORMS["noheader"][1])).encode(),
    "neuron": b'{"neuron_runtime_data": [], "system_data": {}}\n',
    "dynolog": b'time = 2027-01-15T08:00:00.000Z data = {"device": 0}\n',
    "wandb": b":W&B\xe1\xbe\x00" + bytes(40),
    "sqlite": b"SQLite format 3\x00" + bytes(100),
}
NAMES = [
    *("metrics.csv", "history.csv", "x.csv", "x.tsv", "x.json", "x.jsonl", "x.log", "x.txt", "train.log"),
    *("trainer_state.json", "events.out.tfevents.1.h", "run-a.wandb", "x.db", "x.mapping.json", "x.ndjson"),
]
BODIES = st.one_of(st.binary(max_size=300), st.sampled_from(sorted(REAL)).flatmap(lambda kind: damaged(REAL[kind])))
FOLDER = st.dictionaries(st.sampled_from(NAMES), BODIES, min_size=1, max_size=4)


def test_no_reader_of_scalars_raises_what_is_not_its_error() -> None:
    def check(body: bytes) -> None:
        is_history(body, ScalarNames())
        for read in (read_history, read_trainer_state):
            with suppress(TelemetryFormatError):
                taken = read("metrics.csv", body)
                assert all(row.step >= 0 for row in taken.rows.between(0, len(taken.rows), 0.0))
        with suppress(TelemetryFormatError):
            read_scalars(MemoryFiles({"events": body}), "events")

    search(check, 150, known=tuple(REAL.values()), body=BODIES)


def written(folder: str, files: dict[str, bytes]) -> Path:
    job = Path(folder) / "job"
    job.mkdir()
    for name, body in files.items():
        (job / name).write_bytes(body)
    return job


def test_search_of_a_folder_survives_any_bytes() -> None:
    def check(files: dict[str, bytes]) -> None:
        with TemporaryDirectory() as folder:
            job = written(folder, files)
            with suppress(ProfileSourceError):
                find_runs(folder)
            training_of_job(job)
            for file in job.iterdir():
                for each in recordings_of(file):
                    with suppress(TelemetryFormatError, OSError):
                        each.read()

    search(check, 80, files=FOLDER)


@short_and_long
def test_folder_of_any_bytes_is_judged_or_refused(examples: int) -> None:
    def check(files: dict[str, bytes]) -> None:
        with TemporaryDirectory() as folder, suppress(NoProfileError, ProfileSourceError, TelemetryFormatError):
            analyze(str(written(folder, files)))

    search(check, min(examples // 3, 500), files=FOLDER)


def test_whole_history_is_judged_beside_any_bytes() -> None:
    def check(files: dict[str, bytes]) -> None:
        with TemporaryDirectory() as folder:
            job = written(folder, {name: body for name, body in files.items() if name != "history.csv"})
            (job / "history.csv").write_bytes(REAL["table"])
            found = training_of_job(job)
            assert found is not None
            assert any("history.csv" in key for key in found.scalars)

    search(check, 40, files=FOLDER)
