"""Names of job and node from what started the job."""

import os
from pathlib import Path

import pytest

from trainguard_collector.names import Identity, identify, is_first_process_of_node, with_torchrun

LAUNCHER = (1_800_000_000.0, 77)
SAGEMAKER = {"TRAINING_JOB_NAME": "bert-1", "SM_CURRENT_HOST": "algo-2", "SM_HOSTS": '["algo-1", "algo-2"]'}
SLURM = {"SLURM_JOB_ID": "812", "SLURM_JOB_NAME": "my run", "SLURMD_NODENAME": "p5-3", "SLURM_NODEID": "1"}
BATCH = {"AWS_BATCH_JOB_ID": "9a-b#1", "AWS_BATCH_JOB_NODE_INDEX": "1", "AWS_BATCH_JOB_NUM_NODES": "2"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "bert-worker-3"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "run_7", "GROUP_RANK": "1", "GROUP_WORLD_SIZE": "4", "LOCAL_RANK": "0"}
OF_ANN = {"submitted-by": "ann", "scheduler-account": "nlp"}
MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "16", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (SAGEMAKER, Identity("bert-1", "algo-2", 1, 2, True)),
        ({**SLURM, "SLURM_JOB_NUM_NODES": "4"}, Identity("my-run-812", "p5-3", 1, 4, attempt=1, platform="slurm")),
        ({**SLURM, "SLURM_RESTART_COUNT": "2"}, Identity("my-run-812", "p5-3", 1, attempt=3, platform="slurm")),
        (
            {**SLURM, "SLURM_JOB_PARTITION": "gpu", "SLURM_JOB_USER": "ann", "SLURM_JOB_ACCOUNT": "nlp"},
            Identity("my-run-812", "p5-3", 1, None, False, None, 1, "slurm", "gpu", OF_ANN),
        ),
        (BATCH, Identity("9a-b", "node-1", 1, 2, platform="batch")),
        ({**BATCH, "AWS_BATCH_JOB_ATTEMPT": "2"}, Identity("9a-b", "node-1", 1, 2, attempt=2, platform="batch")),
        (
            {**BATCH, "AWS_BATCH_JOB_NODE_INDEX": "", "AWS_BATCH_JQ_NAME": "p5"},
            Identity("9a-b", "ip-10-0-0-7.ec2", None, 2, platform="batch", queue="p5"),
        ),
        (POD, Identity("bert", "bert-worker-3", 3, platform="kubernetes")),
        (
            {**POD, "HOSTNAME": "sweep-0-x7k2p", "JOB_COMPLETION_INDEX": "0"},
            Identity("sweep", "sweep-0-x7k2p", 0, platform="kubernetes"),
        ),
        (TORCHRUN, Identity("run-7", "ip-10-0-0-7.ec2", 1, 4)),
        ({**MPI, "PMIX_NAMESPACE": "12"}, Identity("mpi-12", "ip-10-0-0-7.ec2", 0, 2)),
        ({}, Identity("ip-10-0-0-7-ec2-20270115-080000-77", "ip-10-0-0-7.ec2")),
        (
            {**SLURM, "TRAINGUARD_JOB": "a/b", "TRAINGUARD_NODE": "n_1"},
            Identity("a-b", "n-1", 1, attempt=1, platform="slurm"),
        ),
    ],
)
def test_environment_gives_its_names(environment: dict[str, str], expected: Identity, tmp_path: Path) -> None:
    found = identify(environment, hostname="ip-10-0-0-7.ec2", resource_config=tmp_path / "no", launcher=LAUNCHER)
    assert found == expected


@pytest.mark.parametrize(
    ("pod", "environment", "job", "index"),
    [
        ("train-20261101-x7k2p", {}, "train-20261101", None),
        ("cron-28391234-h6m9q", {}, "cron-28391234", None),
        ("gpt-125-h6m9q", {}, "gpt-125", None),
        ("exp-small", {}, "exp-small", None),
        ("exp-large", {}, "exp-large", None),
        ("llama-7", {}, "llama-7", None),
        ("llama-70", {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "1"}, "llama-70", None),
        ("bert-finetune-1730000000", {"WORLD_SIZE": "4"}, "bert-finetune-1730000000", None),
        ("set-3", {"WORLD_SIZE": "4"}, "set", 3),
        ("set-1", {"PET_NNODES": "2"}, "set", 1),
        ("sweep-12-x7k2p", {"JOB_COMPLETION_INDEX": "12"}, "sweep", 12),
        ("run-7-x7k2p", {"JOB_COMPLETION_INDEX": "0"}, "run-7", 0),
        ("pj-master-0", {}, "pj", 0),
        ("pj-worker-1", {}, "pj", 1),
        ("mpi-launcher-x7k2p", {}, "mpi", None),
    ],
)
def test_runs_of_other_names_in_a_pod_are_other_jobs(
    pod: str, environment: dict[str, str], job: str, index: int | None
) -> None:
    found = identify({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": pod, **environment})
    assert (found.job, found.node, found.index) == (job, pod, index)


def test_unnamed_jobs_started_in_one_second_are_distinct() -> None:
    names = {identify({}, hostname="host", launcher=(1_800_000_000.0, pid)).job for pid in (7, 8)}
    assert len(names) == 2
    assert identify({}, hostname="host").job.endswith(f"-{os.getpid()}")


def test_resource_config_replaces_missing_variables(tmp_path: Path) -> None:
    config = tmp_path / "resourceconfig.json"
    config.write_text('{"current_host": "algo-2", "hosts": ["algo-1", "algo-2"], "current_instance_type": "ml.p5"}')
    found = identify({"TRAINING_JOB_NAME": "bert"}, hostname="x", resource_config=config)
    assert found == Identity("bert", "algo-2", 1, 2, True, "ml.p5")


@pytest.mark.parametrize("name", ["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"])
def test_other_local_rank_is_not_first_of_the_node(name: str) -> None:
    assert is_first_process_of_node({name: "0"})
    assert not is_first_process_of_node({name: "3"})


@pytest.mark.parametrize(
    ("command", "job", "index", "nodes"),
    [
        ("torchrun --nnodes=2 --node-rank=1 --rdzv-id=run_7 --nproc-per-node 8 train.py --nnodes 9", "run-7", 1, 2),
        ("/opt/bin/torchrun --rdzv_id run_7 --nnodes 2:2 -m train --rdzv-id x", "run-7", None, 2),
        ("python -u -m torch.distributed.run --nnodes 1:4 --rdzv_id run_7 train.py", "run-7", None, None),
        ("python -mtorch.distributed.run --node_rank 3 --nnodes 4 --rdzv-id run_7 train.py", "run-7", 3, 4),
        ("numactl -N 0 torchrun --rdzv-id run_7 train.py", "run-7", 0, 1),
        ("torchrun --standalone --rdzv-id run_7 --nnodes 3 train.py", "host-20270115-080000-77", 0, 1),
        ("torchrun --nproc-per-node 8 train.py --rdzv-id run_7", "host-20270115-080000-77", 0, 1),
        ("python train.py torchrun --rdzv-id run_7", "host-20270115-080000-77", None, None),
        ("torchrun --rdzv-id", "host-20270115-080000-77", 0, 1),
        ("python -m", "host-20270115-080000-77", None, None),
    ],
)
def test_torchrun_options_name_the_job(
    command: str, job: str, index: int | None, nodes: int | None, tmp_path: Path
) -> None:
    environment = with_torchrun({}, command.split())
    found = identify(environment, hostname="host", resource_config=tmp_path / "no", launcher=LAUNCHER)
    assert found == Identity(job, "host", index, nodes)


def test_more_specific_variable_precedes_under_torchrun(tmp_path: Path) -> None:
    told = {"PET_RDZV_ID": "pet", "PET_NNODES": "2", "PET_NODE_RANK": "1"}
    words = ["torchrun", "--nnodes", "4", "train.py"]

    def named(environment: dict[str, str]) -> Identity:
        return identify(with_torchrun(environment, words), hostname="host", resource_config=tmp_path / "no")

    assert named(told) == Identity("pet", "host", 1, 4)
    assert named({**told, **TORCHRUN}) == Identity("run-7", "host", 1, 4)
    assert named({**told, **SLURM}).job == "my-run-812"
    assert named({**told, "TRAINGUARD_JOB": "mine"}).job == "mine"
