"""The recorded runs: a row for each time at which their training tool published samples; and where each run is from.

Columns: ``t`` seconds since the run's start; for GPU n ``u<n>`` utilization, ``a<n>`` activity of the memory
controller, ``m<n>`` memory in use, all in percent, ``w<n>`` watts; for core n ``c<n>`` percent; ``ram`` host memory in
use, percent; ``net`` bytes a second, sent and received. A field is empty where no sample of the series was published.
"""

import csv
import io
import lzma
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

FOLDER = Path(__file__).parent
FloatArray = np.ndarray[Any, np.dtype[np.float64]]


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a run is from, and what is known of it beside its samples.

    ``seconds`` is the time of the last sample. ``exit_code`` None says that none was recorded. ``same_job`` is the run
    of the job's other process: both were recorded on one node at the same time.
    """

    name: str
    source: str
    source_file: str
    licence: str
    gpus: int
    cores: int
    gpu: str | None
    seconds: float
    exit_code: int | None
    same_job: str | None


@dataclass(frozen=True, slots=True)
class Recording:
    """A run's samples.

    Attributes
    ----------
    origin : Origin
    times : float64[T]
        Seconds since the run's start.
    columns : mapping of str to float64[T]
        By the names of the module's docstring, without ``t``; NaN is no sample.
    """

    origin: Origin
    times: FloatArray
    columns: Mapping[str, FloatArray]

    def of_gpus(self, kind: str) -> FloatArray:
        """Return the samples of one kind (``u``, ``a``, ``m`` or ``w``) of all GPUs: float64[S, GPUs], without NaN."""
        matrix = np.column_stack([self.columns[f"{kind}{gpu}"] for gpu in range(self.origin.gpus)])
        samples: FloatArray = matrix[~np.isnan(matrix).any(axis=1)]
        return samples


@cache
def origins() -> dict[str, Origin]:
    """Return where the runs are from, by name and in order."""
    listed = msgspec.json.decode((FOLDER / "index.json").read_bytes(), type=list[Origin])
    return {origin.name: origin for origin in listed}


def read_recording(name: str) -> Recording:
    """Return the samples of the run ``name``; raises KeyError when there is no such run."""
    origin = origins()[name]
    text = lzma.decompress((FOLDER / "data" / f"{name}.csv.xz").read_bytes()).decode()
    header, *rows = csv.reader(io.StringIO(text))
    values = np.array([[float(field) if field else np.nan for field in row] for row in rows])
    columns = dict(zip(header, values.T, strict=True))
    return Recording(origin, columns.pop("t"), columns)
