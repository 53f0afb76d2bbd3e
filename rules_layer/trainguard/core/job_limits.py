"""Upper bounds on what one job may make, whatever is written under its name."""

from collections.abc import Iterator, Mapping

MOST_OTHER_STREAMS = 4_096
"""Streams beside those of the nodes that SageMaker names: anybody may invent names."""

MOST_ALERTED_EPISODES = 100
"""Episodes of a rule that fire on one job: a condition that comes and goes without end starts no more executions."""

LAST_EPISODE = MOST_ALERTED_EPISODES - 1
"""After this episode no other begins."""

MOST_NEW_JOBS = 1_000
"""Names that objects bring and that become jobs within a clock hour."""

MOST_END_REPORTS = 24
"""Each batch of data that comes after a job's end asks for another report."""

MOST_CAPTURE_EXECUTIONS = 512


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
