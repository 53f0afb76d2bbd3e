"""The verdict on a table of operations."""

from collections import Counter

from trainguard.formats.operations import read_operations
from trainguard.stragglers.verdict import StragglerVerdict, straggler_verdict


def judged(table: bytes) -> StragglerVerdict:
    found = straggler_verdict(*read_operations(table, "table.csv"))
    assert not isinstance(found, Counter), found
    return found
