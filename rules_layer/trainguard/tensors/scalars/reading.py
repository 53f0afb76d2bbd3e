"""What event files recorded, step by step. Importing this module imports protobuf."""

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from trainguard.tensors.scalars.event_file import ScalarColumns
from trainguard.tensors.scalars.names import scalar_name
from trainguard.tensors.scalars.rows import LARGEST_STEP, Recording


def recordings(columns: ScalarColumns, folder: str, saved_at: float) -> Iterator[Recording]:
    """Iterate over what event files recorded, step after step in the order of the file.

    A time that is none is replaced by ``saved_at``; scalars of negative steps are left out.
    """
    names = [scalar_name(tag, folder) for tag in columns.tags]
    borders = [0, *(np.flatnonzero(np.diff(columns.step)) + 1).tolist(), columns.step.size]
    tags, values = columns.tag.tolist(), columns.value.tolist()
    for start, end in pairwise(borders):
        step = int(columns.step[start]) if start < end else -1
        if 0 <= step <= LARGEST_STEP:
            at = float(columns.at[start])
            found = {names[tag]: value for tag, value in zip(tags[start:end], values[start:end], strict=True)}
            yield Recording(step, at if math.isfinite(at) else saved_at, found)
