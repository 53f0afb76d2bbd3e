"""Episodes on the time lines: what is said about those that a finding no longer has."""

from tests.unit.report_html.reports import finding
from trainguard.core.finding import EpisodeEntry
from trainguard.core.timestamps import iso_time
from trainguard.report.job.build import unmarked


def test_unmarked_earlier_episodes_are_mentioned() -> None:
    one = EpisodeEntry(start=iso_time(1_795_248_000.0), end=None, node=None)
    assert unmarked([finding("A", episodes=[one], earlier_episodes=4)]) == [
        "4 of 5 episodes are not marked: of each finding, the newest are."
    ]
    assert unmarked([finding("A", episodes=[one])]) == []
