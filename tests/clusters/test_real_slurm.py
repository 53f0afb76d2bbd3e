"""Slurm of Debian's packages with two nodes on this machine: its jobs are sampled and end as it says. Needs root."""

import json
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.clusters.test_hosts import COLLECTOR, HOSTS, program
from tests.collector.runs import until

pytestmark = [pytest.mark.tools, pytest.mark.timeout(180)]

USER = "nobody"
SCRIPTS = ("prolog", "epilog", "task-prolog")


class Cluster:
    """A controller and two nodes; ``output`` is where the jobs' profiles are written."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.output, host = folder, folder / "output", socket.gethostname().split(".")[0]
        self.started: list[subprocess.Popen[bytes]] = []
        packages = folder / "packages"
        shutil.copytree(COLLECTOR / "trainguard_collector", packages / "trainguard_collector")
        shutil.copytree(Path(sysconfig.get_path("purelib"), "psutil"), packages / "psutil")
        program(folder / "python", f'shift; exec env PYTHONPATH={packages} /usr/bin/python3 "$@"')
        (folder / "collector.env").write_text(
            f"TRAINGUARD_OUTPUT={self.output}\nTRAINGUARD_PYTHON={folder / 'python'}\nTRAINGUARD_INTERVAL_MS=100\n"
        )
        shutil.copytree(HOSTS, folder / "hosts")
        for name in SCRIPTS:
            variables = f"TRAINGUARD_CONFIG={folder / 'collector.env'} TRAINGUARD_RUN={folder / 'run'}"
            program(folder / name, f"exec env {variables} {folder / 'hosts/slurm' / name}")
        self.output.mkdir(mode=0o777)
        self.output.chmod(0o777)
        nodes = "".join(
            f"NodeName=n{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={17101 + number} CPUs=1\n"
            for number in range(2)
        )
        scripts = "".join(f"{name.title().replace('-', '')}={folder / name}\n" for name in SCRIPTS)
        (folder / "slurm.conf").write_text(
            f"ClusterName=t\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort=17100\nSlurmUser=root\nSlurmdUser=root\n"
            f"AuthInfo=socket={folder / 'munge.socket'}\nStateSaveLocation={folder / 'state'}\n"
            f"SlurmdSpoolDir={folder}/spool.%n\nSlurmctldPidFile={folder / 'ctld.pid'}\nSlurmdPidFile={folder}/%n.pid\n"
            "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nReturnToService=2\nMailProg=/bin/true\n"
            f"PrologFlags=Alloc\n{scripts}{nodes}PartitionName=gpu Nodes=n0,n1 Default=YES State=UP\n"
        )
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        names = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        files = [f"--{name}={folder}/munge.{name.removesuffix('-file')}" for name in names]
        self.start("munged", "--foreground", "--force", *files)
        until((folder / "munge.socket").exists)
        self.start("slurmctld", "-D")
        for number in range(2):
            self.start("slurmd", "-D", "-N", f"n{number}")
        until(lambda: self.call("sinfo", "-h", "-o", "%D %t") == "2 idle")

    def start(self, *command: str) -> None:
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        with (self.folder / "log").open("ab") as log:
            self.started.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))

    def call(self, *command: str) -> str:
        environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        return subprocess.run(command, env=environment, cwd=self.folder, stdout=subprocess.PIPE).stdout.decode().strip()

    def submit(self, script: str) -> str:
        program(self.folder / "job.sh", script)
        sbatch = ("sbatch", "--parsable", "-N", "2", "-o", f"{self.output}/%j.out", "job.sh")
        return self.call("runuser", "-u", USER, "--", *sbatch)

    def described(self, job: str) -> dict[str, Any]:
        def ended() -> bool:
            path = self.output / f"slurm-{job}/job.json"
            return path.exists() and "ended_at" in json.loads(path.read_bytes())

        until(ended)
        found: dict[str, Any] = json.loads((self.output / f"slurm-{job}/job.json").read_bytes())
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    folder.chmod(0o755)
    made = Cluster(folder)
    yield made
    below = [each for process in made.started for each in psutil.Process(process.pid).children(recursive=True)]
    for process in reversed(made.started):
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
    for each in below:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    shutil.rmtree(folder)


def test_job_of_two_nodes_is_sampled_and_its_tasks_join_it(cluster: Cluster) -> None:
    job = cluster.submit("srun sh -c 'echo $TRAINGUARD_COLLECTOR_SETTINGS; sleep 4'; exit 3")
    found = cluster.described(job)
    assert (found["status"], found["instance_count"], found["queue"]) == ("Failed", 2, "gpu")
    assert (found["platform"], found["tags"]) == ("slurm", {"submitted-by": USER})
    minutes = (cluster.output / f"slurm-{job}/profiler-output/system/incremental").rglob("*.json")
    assert {path.name.split(".")[1] for path in minutes} == {"n0", "n1"}
    lines = (cluster.output / f"{job}.out").read_text().splitlines()
    told = [json.loads(json.loads(line)["settings"])["identity"] for line in lines if line[:1] == "{"]
    assert sorted((each["job"], each["node"], each["index"]) for each in told) == [
        (f"slurm-{job}", "n0", 0),
        (f"slurm-{job}", "n1", 1),
    ]


@pytest.mark.parametrize(("script", "status"), [("sleep 2", "Completed"), ("srun sleep 90", "Stopped")])
def test_job_ends_as_slurm_says(script: str, status: str, cluster: Cluster) -> None:
    job = cluster.submit(script)
    if status == "Stopped":
        until((cluster.output / f"slurm-{job}/job.json").exists)
        time.sleep(1.0)
        cluster.call("scancel", job)
    assert cluster.described(job)["status"] == status
    until(lambda: cluster.call("sinfo", "-h", "-o", "%D %t") == "2 idle")
