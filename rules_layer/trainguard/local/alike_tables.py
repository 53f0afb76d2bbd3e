"""Tables of one folder that are runs of their own: ``lr-0.1.csv`` and ``lr-0.01.csv``, as people keep a sweep.

They have the same columns, and the same scalars over the same steps with other values. Tables of training and
validation, of ranks, of parts that follow each other, and copies are of one run.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import combinations

from trainguard.core.errors import TelemetryFormatError, UnusableError
from trainguard.formats.tensors.scalars.names import ScalarNames, match_scalar_file
from trainguard.formats.tensors.scalars.rows import RunValues, recorded_apart, resumed_at, values_of
from trainguard.formats.tensors.scalars.run_folders import is_of_mode
from trainguard.formats.tensors.scalars.trainer_files import MAX_FILE_BYTES, read_history

# Tables of one folder that are compared; of more, all are of one run, of which the newest is judged.
MOST_TABLES = 50

_ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
# Ranks, and the environments of one agent: ``0.monitor.csv``.
_OF_ONE_RUN = re.compile(
    r"(?i)(?:^|[^a-z])(?:rank|worker|gpu|proc|process|node|host)[-_.]?\d+(?:[^0-9]|$)|^\d+\.monitor$"
)

# Returns up to so many bytes of a file; raises OSError or UnusableError.
Read = Callable[[int], bytes]


def runs_among(files: Mapping[str, Read]) -> frozenset[str]:
    """Return which of a run's files, given by name, are runs of their own: of one folder two or more, or none."""
    by_folder: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(files):
        if _is_table(name):
            by_folder[name.rpartition("/")[0]].append(name)
    found: set[str] = set()
    for names in by_folder.values():
        if 1 < len(names) <= MOST_TABLES:
            found |= _of_their_own({name: files[name] for name in names})
    return frozenset(found)


def _is_table(name: str) -> bool:
    stem, _, _ = name.rpartition("/")[2].rpartition(".")
    known = match_scalar_file(name)
    is_table = name.lower().endswith(_ENDINGS) and (known is None or known.kind == "csv")
    return is_table and not is_of_mode(stem) and _OF_ONE_RUN.search(stem) is None


def _of_their_own(tables: Mapping[str, Read]) -> set[str]:
    alike: defaultdict[frozenset[str], dict[str, RunValues]] = defaultdict(dict)
    for name, read in tables.items():
        try:
            rows = read_history(name, read(MAX_FILE_BYTES)).rows
        except (OSError, UnusableError, TelemetryFormatError):
            continue  # When its run is opened it is named.
        if resumed_at(recorded := values_of(rows, ScalarNames())) == 0:
            alike[frozenset(rows.names)][name] = recorded
    return {name for group in alike.values() for name in group if _are_apart(group)}


def _are_apart(group: Mapping[str, RunValues]) -> bool:
    pairs = combinations(group.values(), 2)
    return len(group) > 1 and all(recorded_apart(one, other) is not None for one, other in pairs)
