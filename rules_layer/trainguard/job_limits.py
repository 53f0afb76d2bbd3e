"""What one job may make at most, whatever is written under its name, and how its item says that a limit was reached."""

from collections.abc import Iterator, Mapping

MOST_OTHER_STREAMS = 4_096
"""So many streams of a job are evaluated beside those of the nodes that SageMaker names: anybody may invent names."""

MOST_ALERTED_EPISODES = 100
"""So many episodes of a rule fire on one job: a condition that comes and goes without end starts no more executions."""

LAST_EPISODE = MOST_ALERTED_EPISODES - 1
"""The number of a job's episode of a rule after which no other begins: its fire is the last one."""

MOST_NEW_JOBS = 1_000
"""So many names that objects bring become jobs within a clock hour; SageMaker's events bring the others."""

MOST_END_REPORTS = 24
"""So many full reports of one job are made at its end: each batch of data that come later asks for another one."""

MOST_CAPTURE_EXECUTIONS = 512
"""So many executions judge captures of one job."""


def reached_limits(*, streams_left_out: bool, episodes: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each limit that a job has reached; ``episodes`` counts those that ended, by rule."""
    if streams_left_out:
        yield (
            f"objects name more than {MOST_OTHER_STREAMS:,} streams of nodes that SageMaker does not name: "
            "the streams beyond these are not evaluated"
        )
    for rule, ended in sorted(episodes.items()):
        if ended >= LAST_EPISODE:
            yield f"{rule} fired {MOST_ALERTED_EPISODES} times: it fires no more on this job"
