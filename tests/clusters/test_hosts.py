"""What starts and ends samplers on machines: Slurm's prolog and epilog, systemd's units, and how they are installed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collector.runs import until

HOSTS = Path(__file__).parents[2] / "deploy" / "hosts"
COLLECTOR = HOSTS.parents[1] / "collector"


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


class Node:
    """A node of Slurm: programs that stand in for Slurm's own, and the variables that Slurm sets."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output, self.run = folder, folder / "output", folder / "run"
        # The job's user is the one that runs this.
        program(folder / "bin/setpriv", 'while [[ $1 == --* ]]; do shift; done; exec "$@"')
        program(folder / "bin/scontrol", "if [[ $1 == show ]]; then printf 'n0\\nn1\\n'; else cat $0.answer; fi")
        (folder / "bin/scontrol.answer").write_text("JobId=7 ExitCode=0:15 DerivedExitCode=0:0\n")
        self.config("")

    def config(self, more: str) -> None:
        program(self.folder / "python", f'shift; exec env PYTHONPATH={COLLECTOR} {sys.executable} "$@"')
        python = f"TRAINGUARD_PYTHON={self.folder / 'python'}\nTRAINGUARD_INTERVAL_MS=100\nTRAINGUARD_FINISH_S=5\n"
        spool = f"TRAINGUARD_SPOOL={self.folder / 'spool'}\n"
        (self.folder / "collector.env").write_text(f"TRAINGUARD_OUTPUT={self.output}\n{python}{spool}{more}")

    def call(self, script: str, job: str, **more: str) -> str:
        environment = {
            **os.environ,
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "TRAINGUARD_CONFIG": str(self.folder / "collector.env"),
            "TRAINGUARD_RUN": str(self.run),
            "SLURM_JOB_ID": job,
            "SLURM_JOB_UID": str(os.getuid()),
            "SLURM_JOB_USER": "ann",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_NODELIST": "n[0-1]",
            "SLURMD_NODENAME": "n0",
            **more,
        }
        found = subprocess.run([HOSTS / "slurm" / script], env=environment, stdout=subprocess.PIPE, timeout=60)
        assert found.returncode == 0, "a prolog or an epilog that fails drains the node"
        return found.stdout.decode()

    def described(self, job: str) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.output / f"slurm-{job}/job.json").read_bytes())
        return found

    def status(self, job: str) -> object:
        return json.loads((self.output / f"slurm-{job}/collector/n0.status.json").read_bytes())


@pytest.mark.timeout(120)
def test_slurm_job_is_sampled_from_prolog_to_epilog(tmp_path: Path) -> None:
    node = Node(tmp_path)
    outcomes = {"7": ("0:0", "Stopped"), "8": ("3:0", "Failed"), "9": ("0:9", "Failed")}
    for job in outcomes:
        node.call("prolog", job, SLURM_JOB_RESTART_COUNT="1")
    carried = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TRAINGUARD_COLLECTOR_PID": "1"}
    exported = node.call("task-prolog", "7", **carried).splitlines()
    names = [line.removeprefix("export ").split("=")[0] for line in exported]
    assert {"TRAINGUARD_COLLECTOR_PID", "TRAINGUARD_COLLECTOR_SETTINGS", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"} < set(names)
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" not in names, "what the user has set stays"
    for job in outcomes:
        until(lambda job=job: (node.output / f"slurm-{job}/collector/n0.status.json").exists())  # type: ignore[misc]
    for job, (code, _) in outcomes.items():
        node.call("epilog", job, SLURM_JOB_EXIT_CODE2=code)
    for job, (_, status) in outcomes.items():
        until(lambda job=job: "ended_at" in node.described(job))  # type: ignore[misc]
        found = node.described(job)
        assert (found["status"], found["platform"], found["queue"]) == (status, "slurm", "gpu")
        assert found["tags"] == {"submitted-by": "ann"}
    assert not list(node.run.iterdir())


@pytest.mark.parametrize(
    ("config", "variables"),
    [
        ("TRAINGUARD_OUTPUT=\n", {}),
        ("TRAINGUARD_JOBS=gpu\n", {}),
        ("TRAINGUARD_PARTITIONS='cpu debug'\n", {"SLURM_JOB_GPUS": "0"}),
        ("", {"TRAINGUARD_CONFIG": "/none"}),
    ],
)
def test_jobs_that_are_not_chosen_get_no_sampler(config: str, variables: dict[str, str], tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.config(config)
    node.call("prolog", "7", **variables)
    assert not node.run.exists()
    assert node.call("task-prolog", "7") == ""
    node.call("epilog", "7")


def test_sampler_that_cannot_start_holds_up_no_job(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.config("TRAINGUARD_PYTHON=/none\nTRAINGUARD_PARTITIONS='gpu cpu'\n")
    node.call("prolog", "7")
    node.call("epilog", "7", SLURM_JOB_EXIT_CODE2="1:0")
    assert not list(node.run.iterdir())


def test_job_of_slurm_names_its_gpus_group_and_node(tmp_path: Path) -> None:
    node, seen = Node(tmp_path), tmp_path / "seen"
    program(tmp_path / "witness", f"env > {seen}.part; mv {seen}.part {seen}")
    node.config(f"TRAINGUARD_PYTHON={tmp_path / 'witness'}\n")
    node.call("prolog", "7", SLURM_JOB_GPUS="2,3", SLURM_JOB_RESTART_COUNT="2", SLURMD_NODENAME="n1")
    until(seen.exists)
    found = dict(line.split("=", 1) for line in seen.read_text().splitlines() if "=" in line)
    assert (found["TRAINGUARD_GPUS"], found["SLURM_RESTART_COUNT"], found["SLURM_NODEID"]) == ("2,3", "2", "1")
    assert "system.slice/slurmstepd.scope/job_7" in found["TRAINGUARD_CGROUP_PATH"].split(":")


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        ("Result=success\nExecMainCode=1\nExecMainStatus=0", "0"),
        ("Result=exit-code\nExecMainCode=1\nExecMainStatus=3", "3"),
        ("Result=success\nExecMainCode=2\nExecMainStatus=15", "stopped"),
        ("Result=oom-kill\nExecMainCode=2\nExecMainStatus=9", "137"),
        ("Result=success\nExecMainCode=0\nExecMainStatus=0", "stopped"),
    ],
)
def test_unit_that_ends_says_its_result_to_the_sampler(shown: str, word: str, tmp_path: Path) -> None:
    program(tmp_path / "bin/systemctl", f"printf '{shown}\\n'")
    program(tmp_path / "tell", f'echo "$2" > {tmp_path}/word')
    end = tmp_path / "systemd/end"
    program(end, (HOSTS / "systemd/end").read_text())
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    subprocess.run([end, "training"], env={"PATH": path, "RUNTIME_DIRECTORY": "/run/x", "MAINPID": "0x"}, check=True)
    assert (tmp_path / "word").read_text() == f"{word}\n"


def test_run_of_a_unit_is_a_job_of_its_name(tmp_path: Path) -> None:
    program(tmp_path / "python", 'echo "$TRAINGUARD_JOB $@"')
    environment = {"PATH": os.environ["PATH"], "RUNTIME_DIRECTORY": str(tmp_path)}
    environment["TRAINGUARD_PYTHON"] = str(tmp_path / "python")
    run = subprocess.run([HOSTS / "systemd/run", "training"], env=environment, stdout=subprocess.PIPE, check=True)
    name, *words = run.stdout.decode().split()
    assert name.startswith("training-2")
    assert words[-1] == str(tmp_path)
    assert (tmp_path / "end").is_fifo()


@pytest.mark.parametrize("kind", ["slurm", "systemd"])
def test_installed_files_are_those_that_units_and_slurm_call(kind: str, tmp_path: Path) -> None:
    program(
        tmp_path / "python3", f'mkdir -p "$3/bin"; printf "#!/bin/sh\\necho \\$@ >> {tmp_path}/pip" > "$3/bin/python"; '
        'chmod +x "$3/bin/python"',
    )  # fmt: skip
    root = tmp_path / "root"
    for name in ("prolog.d", "epilog.d"):
        (root / "etc/slurm" / name).mkdir(parents=True)
    environment = {**os.environ, "TRAINGUARD_ROOT": str(root), "PYTHON": str(tmp_path / "python3")}
    for _ in range(2):
        subprocess.run([HOSTS / "install.sh", kind, "s3://b/jobs"], env=environment, check=True, stdout=subprocess.PIPE)
        config = root / "etc/trainguard/collector.env"
        assert "TRAINGUARD_OUTPUT=s3://b/jobs" in config.read_text().splitlines()
        config.write_text(config.read_text() + "TRAINGUARD_INTERVAL_MS=1000\n")
    assert config.read_text().count("TRAINGUARD_INTERVAL_MS") == 2, "settings of the operator stay"
    assert "trainguard-collector[s3]" in (tmp_path / "pip").read_text()
    called = [HOSTS / "slurm" / name for name in ("prolog", "epilog", "task-prolog")] if kind == "slurm" else []
    for unit in (root / "etc/systemd/system").glob("*.service"):
        commands = [line.partition("=")[2].split()[0] for line in unit.read_text().splitlines() if line[:4] == "Exec"]
        called += [HOSTS / each.removeprefix("/opt/trainguard/hosts/") for each in commands if "/hosts/" in each]
    assert len(called) == (3 if kind == "slurm" else 2)
    for each in called:
        assert os.access(root / "opt/trainguard/hosts" / each.relative_to(HOSTS), os.X_OK)
    if kind == "slurm":
        assert (root / "etc/slurm/prolog.d/90_trainguard").resolve().name == "prolog"


@pytest.mark.parametrize("words", [(), ("slurm",), ("slurm", "bucket"), ("other", "s3://b")])
def test_install_without_kind_and_place_says_its_usage(words: tuple[str, ...]) -> None:
    run = subprocess.run([HOSTS / "install.sh", *words], stderr=subprocess.PIPE)
    assert (run.returncode, b"Usage" in run.stderr) == (2, True)
