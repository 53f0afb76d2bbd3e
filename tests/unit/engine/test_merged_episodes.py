"""A job's episodes: what overlaps on several nodes is one, and names them."""

from dataclasses import replace

from trainguard.core.finding import MOST_EPISODES, Episode
from trainguard.core.records import JOB_NODE, Status
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome, combine, final
from trainguard.rules.rule_result import RuleResult

RULE = "LowGPUUtilization"


def verdict(*episodes: Episode, is_open: bool = False) -> RuleOutcome:
    """Return a node's verdict with such episodes, and a threshold of 70."""
    result = RuleResult(Status.FIRED, "low.", measured=40.0, threshold=70.0)
    history = FiringHistory(is_open=is_open, times_fired=len(episodes), fired_at=60.0)
    return RuleOutcome(RULE, result, history, merged=episodes)


def test_simultaneous_low_nodes_are_one_episode_of_both() -> None:
    job = combine(
        RULE,
        {
            "algo-1": verdict(Episode(60.0, 600.0, gpus=("gpu3",), measured=40.0)),
            "algo-2": verdict(Episode(300.0, 900.0, gpus=("gpu0", "gpu1"), measured=20.0)),
        },
        2,
    )

    assert job.episodes == (
        Episode(
            60.0,
            900.0,
            nodes=("algo-1", "algo-2"),
            gpus=("algo-1/gpu3", "algo-2/gpu0", "algo-2/gpu1"),
            measured=20.0,
        ),
    )
    assert job.episodes[0].node is None


def test_nodes_low_in_succession_have_separate_episodes() -> None:
    job = combine(
        RULE,
        {
            "algo-1": verdict(Episode(700.0, None, gpus=("gpu3",)), is_open=True),
            "algo-2": verdict(Episode(60.0, 600.0)),
        },
        2,
    )

    assert [(each.start, each.end, each.node, each.gpus) for each in job.episodes] == [
        (60.0, 600.0, "algo-2", ()),
        (700.0, None, "algo-1", ("gpu3",)),
    ]


def test_gpus_of_a_whole_job_rule_name_the_nodes() -> None:
    whole = verdict(Episode(60.0, 600.0), Episode(900.0, 960.0, gpus=("algo-2/gpu5",)))
    first, second = combine("LoadBalancing", {JOB_NODE: whole}, 4).episodes

    assert first.nodes == ()
    assert (second.node, second.gpus) == ("algo-2", ("gpu5",))


def test_newest_merged_episodes_are_kept_and_others_counted() -> None:
    nodes = {f"algo-{place}": verdict(Episode(100.0 * place, 100.0 * place + 50.0)) for place in range(1, 13)}
    job = combine(RULE, nodes, 12)

    assert (len(job.episodes), job.earlier_episodes) == (MOST_EPISODES, 4)
    assert job.episodes[-1].node == "algo-12"


def test_open_episode_of_an_ended_job_ends_when_last_seen() -> None:
    job = replace(combine(RULE, {"algo-1": verdict(Episode(60.0, None), is_open=True)}, 1), watermark_s=720.0)

    assert [each.end for each in final(job, 720.0).episodes] == [720.0]
    assert final(job, 720.0).history.is_open
