"""Counters of faults in words: one of them, and several."""

import pytest

from trainguard.core.units import faults_counted


@pytest.mark.parametrize(
    ("amount", "name", "said"),
    [
        (1, "bad_lines", "1 bad line"),
        (2_000, "bad_lines", "2,000 bad lines"),
        (1, "values_out_of_range", "1 value out of range"),
        (1, "times_outside_minute", "1 time outside minute"),
        (1, "traces_without_metadata", "1 trace without metadata"),
        (1, "streams_left_out", "1 stream left out"),
        (3, "captures_passed_over", "3 captures passed over"),
        (1, "files_of_other_runs", "1 file of another run"),
        (1, "files_of_other_kinds", "1 file of another kind"),
        (1, "devices_not_judged", "1 device that is not judged"),
        (3_000, "a value of a gpu: node_label=NAME", "a value of a gpu: node_label=NAME (3,000)"),
        (2, "bad_objects", "2 objects that could not be read"),
        (3, "a second series: node_label=NAME says which", "a second series: node_label=NAME says which (3)"),
    ],
)
def test_given_a_counter_when_said_then_number_and_noun_agree(amount: int, name: str, said: str) -> None:
    assert faults_counted(amount, name) == said
