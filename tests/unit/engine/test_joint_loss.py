"""What several findings of a job lost together, and what of a symptom is each cause's own."""

from dataclasses import replace

import pytest

from tests.unit.engine.test_overlap import DAY, HOUR_S, LOW, held, ranked
from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.engine.verdicts.joint_loss import joint_nodes
from trainguard.engine.verdicts.overlap import split_parts
from trainguard.finding import Episode


def roots(found: dict[str, RankedFinding]) -> list[RankedFinding]:
    return [each for each in found.values() if each.explained_by is None]


def on(node: str, *hours: tuple[float, float], gpu: str = "", rate: float = 0.7) -> tuple[Episode, ...]:
    gpus = (gpu,) if gpu else ()
    return tuple(replace(each, gpus=gpus) for each in held(*hours, nodes=(node,), rate=rate))


def test_given_a_symptom_with_two_causes_one_after_the_other_when_ranked_then_each_has_its_own_part() -> None:
    found = ranked(
        LowGPUUtilization=held((2.0, 4.0), (8.0, 11.0)), CPUBottleneck=held((2.0, 4.0)), IOBottleneck=held((8.0, 11.0))
    )

    assert list(found) == ["IOBottleneck", LOW, "CPUBottleneck"]
    assert found[LOW].reasons == pytest.approx({"IOBottleneck": 0.6, "CPUBottleneck": 0.4})
    assert found[LOW].finding.advice == "Do what IOBottleneck and CPUBottleneck advise: they name the causes."
    shares = {rule: 24.0 * (found[rule].charged_nodes or 0.0) for rule in ("IOBottleneck", "CPUBottleneck")}
    assert shares == pytest.approx({"IOBottleneck": 0.7 * 3.0, "CPUBottleneck": 0.7 * 2.0})
    assert found["CPUBottleneck"].score == pytest.approx(100.0 * 0.7 * 2.0 / 24.0)
    assert joint_nodes(roots(found), DAY.watermark_s) == pytest.approx(0.7 * 5.0 / 24.0)


def test_given_two_nodes_with_a_cause_each_when_a_symptom_is_split_then_each_cause_has_its_node() -> None:
    symptom = held((2.0, 4.0), nodes=("algo-1", "algo-2"))
    causes = [on("algo-2", (2.0, 4.0)), on("algo-1", (2.0, 4.0))]

    assert split_parts(symptom, causes, 24.0 * HOUR_S) == pytest.approx([0.5, 0.5])
    assert split_parts(symptom, causes[:1], 24.0 * HOUR_S) == pytest.approx([1.0])


def test_given_causes_at_the_same_time_when_a_symptom_is_split_then_the_first_has_it() -> None:
    assert split_parts(held((2.0, 4.0)), [held((2.0, 4.0)), held((2.0, 4.0))], 24.0 * HOUR_S) == [1.0, 0.0]


@pytest.mark.parametrize(("gpus", "together"), [(("", ""), 1.4), (("gpu0", "gpu1"), 2.0)], ids=["same", "apart"])
def test_given_findings_at_the_same_time_when_added_up_then_what_is_lost_at_once_counts_once(
    gpus: tuple[str, str], together: float
) -> None:
    found = ranked(
        GPUHealth=on("algo-1", (2.0, 4.0), gpu=gpus[0]), HungJob=on("algo-1", (2.0, 4.0), gpu=gpus[1], rate=0.5)
    )

    assert 24.0 * (joint_nodes(roots(found), DAY.watermark_s) or 0.0) == pytest.approx(together)
