"""GPUs of the type and of the profile: the note on the cost reports a difference once, with both numbers."""

from dataclasses import replace

import pytest

from tests.support.judged_jobs import JOB, Node, judged_job
from trainguard.report.job.facts import gpu_remarks, gpus_of_type


def remarks(instance_type: str | None, *gpus: int) -> list[str]:
    nodes = [Node(name=f"algo-{number}", gpus=count) for number, count in enumerate(gpus, 1)]
    return gpu_remarks(judged_job(job=replace(JOB, instance_type=instance_type), nodes=nodes))


@pytest.mark.parametrize(
    ("instance_type", "gpus"),
    [
        ("ml.p4d.24xlarge", (8, 8)),
        ("p5.48xlarge", (8,)),
        ("ml.c5.xlarge", (0,)),
        ("ml.trn1.32xlarge", (0,)),
        ("ml.unheard-of.large", (3,)),
        (None, (3,)),
    ],
)
def test_matching_gpu_count_or_unknown_type_reports_nothing(instance_type: str | None, gpus: tuple[int, ...]) -> None:
    assert remarks(instance_type, *gpus) == []


@pytest.mark.parametrize(
    ("instance_type", "gpus", "said"),
    [
        ("ml.p4d.24xlarge", (4, 4), "has 8 GPUs, and in the profile algo-1 and algo-2 show 4 GPUs:"),
        ("ml.p4d.24xlarge", (8, 1), "has 8 GPUs, and in the profile algo-2 shows 1 GPU:"),
        ("ml.p5en.48xlarge", (0, 4), "has 8 GPUs, and in the profile algo-1 shows no GPU, algo-2 shows 4 GPUs:"),
        ("ml.g5.xlarge", (4,), "has 1 GPU, and in the profile algo-1 shows 4 GPUs:"),
        ("ml.c5.xlarge", (2,), "has no GPU, and in the profile algo-1 shows 2 GPUs:"),
    ],
)
def test_differing_gpu_count_reports_both_numbers(instance_type: str, gpus: tuple[int, ...], said: str) -> None:
    (remark,) = remarks(instance_type, *gpus)
    assert remark == f"An instance of {instance_type} {said} the whole instance is what was paid for."


def test_gpus_of_a_node_that_wrote_nothing_are_not_missing() -> None:
    job = replace(JOB, instance_type="ml.p4d.24xlarge")
    nodes = [Node(name="algo-1", gpus=8), Node(name="algo-2", gpus=0, silent=True)]
    assert gpu_remarks(judged_job(job=job, nodes=nodes)) == []


def test_gpus_of_a_type_are_known_with_or_without_a_price() -> None:
    assert gpus_of_type(judged_job(job=replace(JOB, instance_type="ml.p6-b200.48xlarge"))) == 8
    assert gpus_of_type(judged_job(job=replace(JOB, instance_type="ml.trn2.48xlarge"))) == 0
    assert gpus_of_type(judged_job(job=replace(JOB, instance_type="ml.unheard-of.large"))) is None
