"""The variables of the flight recorder: set where the user has set none, in every process that trains."""

import gzip
from ast import literal_eval
from pathlib import Path

import pytest

from tests.collector.runs import Runs, until
from trainguard_collector.hangs import variables
from trainguard_collector.hangs.variables import set_variables, take_back
from trainguard_collector.names import identify
from trainguard_collector.settings import SettingError, Settings, read_settings

OLD = {"TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}
NEW = {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}
BOTH_KNOW = {"TORCH_NCCL_DUMP_ON_TIMEOUT"}


def settings(folder: Path, **more: str) -> Settings:
    given = {"TRAINGUARD_OUTPUT": "s3://b/p", "TRAINGUARD_SPOOL": str(folder), "TRAINGUARD_JOB": "run-1", **more}
    found = read_settings(given, identify({**given, "TRAINGUARD_NODE": "node-1"}))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("version", "names"), [((2, 5), OLD), ((2, 8), OLD), ((2, 9), NEW), ((2, 15), NEW), (None, OLD | NEW)]
)
def test_names_are_those_that_this_torch_knows(
    version: tuple[int, int] | None, names: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variables, "_torch_version", lambda: version)
    environment = {"PATH": "/bin"}
    found = set_variables(environment, settings(tmp_path))
    assert set(found) == names | BOTH_KNOW
    for name, value in found.items():
        if name.endswith("TEMP_FILE"):
            assert Path(value) == tmp_path / "run-1.node-1.objects" / "nccl_trace_rank_"
            assert Path(value).parent.is_dir()
    take_back(environment, found)
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize("name", sorted(OLD | NEW | BOTH_KNOW))
def test_variable_of_the_user_stays_under_either_name(name: str, tmp_path: Path) -> None:
    environment = {name: "0"}
    found = set_variables(environment, settings(tmp_path))
    assert environment[name] == "0"
    pair = next(each for each in (variables._BUFFER, variables._FILE, variables._ON_TIMEOUT) if name in each)
    assert not set(found) & set(pair)
    assert len(found) >= 2


def test_switched_off_nothing_is_set(tmp_path: Path) -> None:
    environment: dict[str, str] = {}
    assert set_variables(environment, settings(tmp_path, TRAINGUARD_HANGS="0")) == environment == {}
    with pytest.raises(SettingError, match="TRAINGUARD_HANGS is 'no', expected 0 or 1"):
        settings(tmp_path, TRAINGUARD_HANGS="no")


PRINT = "import os; print(sorted(each for each in os.environ if each.startswith('TORCH_')))"


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("way", ["wrapper", "start"])
def test_each_rank_of_a_node_has_the_variables(way: str, rank: str, tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.environment |= {"SLURM_LOCALID": rank, "TORCH_FR_BUFFER_SIZE": "9"}
    if way == "wrapper":
        process = runs.wrap(runs.executable, "-c", PRINT)
    else:
        process = runs.python("-c", f"import trainguard_collector as c; c.start(); {PRINT}")
    out, error = process.communicate()
    assert error == ""
    assert set(literal_eval(out)) >= {"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE", *BOTH_KNOW}
    assert "TORCH_NCCL_TRACE_BUFFER_SIZE" not in out
    assert [each.name for each in runs.spool.iterdir()] == ([] if rank == "0" else ["run-1.node-1.objects"])


def test_script_that_ends_early_leaves_no_folder(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    script = f"from trainguard_collector.session import start, start_later; start_later(60.0); {PRINT}"
    assert "TORCH_" in runs.python("-c", script).communicate()[0]
    until(lambda: not list(runs.spool.iterdir()))
    assert not runs.output.exists()


def test_job_that_the_script_names_has_its_own_folder(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.environment["TORCH_FR_BUFFER_SIZE"] = "9"
    script = (
        "import os; from trainguard_collector.session import start, start_later; start_later(60.0); start(job='mine')\n"
        "files = {os.environ[name] for name in os.environ if name.endswith('TEMP_FILE')}\n"
        "open(files.pop() + '7', 'wb').write(b'\\x80.'); print(files)\n"
    )
    assert runs.python("-c", script).communicate() == ("set()\n", "")
    (dump,) = (each for each in (runs.output / "mine" / "hang-dumps" / "node-1").rglob("*") if each.is_file())
    assert dump.name == "nccl_trace_rank_7.gz"


def test_dumps_of_a_wrapped_command_are_sent_at_its_end(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    script = (
        "import os\n"
        "stem = next(os.environ[name] for name in os.environ if name.endswith('TEMP_FILE'))\n"
        "open(stem + '5', 'wb').write(b'{}'); os.symlink('/etc/hostname', stem + '6')\n"
    )
    assert runs.wrap(runs.executable, "-c", script).communicate() == ("", "")
    (dump,) = (each for each in (runs.output / "run-1" / "hang-dumps" / "node-1").rglob("*") if each.is_file())
    assert (dump.name, gzip.decompress(dump.read_bytes())) == ("nccl_trace_rank_5.gz", b"{}")
    assert runs.status["errors"] == {"dump": "nccl_trace_rank_6 is no regular file"}
    assert not list(runs.spool.iterdir())
