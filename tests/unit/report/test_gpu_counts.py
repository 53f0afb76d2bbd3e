"""GPUs of the type and of the profile: the note on the cost reports a difference once, with both numbers."""

from dataclasses import replace

import pytest

from tests.support.judged_jobs import JOB, Node, judged_job
from trainguard.report.gpu_counts import gpu_remarks, gpus_of_type


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
def test_given_as_many_gpus_as_the_type_has_or_a_type_that_is_not_known_when_compared_then_nothing_is_told(
    instance_type: str | None, gpus: tuple[int, ...]
) -> None:
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
def test_given_more_or_fewer_gpus_than_the_type_has_when_compared_then_both_numbers_are_told_in_one_sentence(
    instance_type: str, gpus: tuple[int, ...], said: str
) -> None:
    (remark,) = remarks(instance_type, *gpus)
    assert remark == f"An instance of {instance_type} {said} the whole instance is what was paid for."


def test_given_a_node_that_wrote_nothing_when_compared_then_its_gpus_are_not_called_missing() -> None:
    job = replace(JOB, instance_type="ml.p4d.24xlarge")
    nodes = [Node(name="algo-1", gpus=8), Node(name="algo-2", gpus=0, silent=True)]
    assert gpu_remarks(judged_job(job=job, nodes=nodes)) == []


def test_given_a_type_that_is_priced_or_not_when_asked_then_its_gpus_are_known() -> None:
    assert gpus_of_type(judged_job(job=replace(JOB, instance_type="ml.p6-b200.48xlarge"))) == 8
    assert gpus_of_type(judged_job(job=replace(JOB, instance_type="ml.trn2.48xlarge"))) == 0
    assert gpus_of_type(judged_job(job=replace(JOB, instance_type="ml.unheard-of.large"))) is None
