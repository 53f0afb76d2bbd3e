"""Where kernel traces lie: one file, a folder of them, an object or a prefix in S3."""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainguard.core.errors import KernelTraceError, PortUnavailableError
from trainguard.core.layout import RESULTS_FOLDER
from trainguard.core.ports import ByteStream
from trainguard.kernels.columns import Trace
from trainguard.kernels.readers.reading import REPORT_ENDINGS, read_any
from trainguard.local.sources import S3

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients
    from trainguard.aws.s3_objects import S3ProfileObjects
    from trainguard.core.ports import ListedObject

NAMED_TRACES = (
    ".pt.trace.json",
    ".pt.trace.json.gz",
    ".xplane.pb",
    ".xplane.pb.gz",
    ".sqlite",
    ".sqlite.gz",
)
_PERHAPS_TRACES = (".json", ".json.gz")
DOCUMENT = "kernels.json"
_NOT_TRACES = {NAMED_TRACES: {RESULTS_FOLDER}, _PERHAPS_TRACES: {RESULTS_FOLDER, "profiler-output", "debug-output"}}


@dataclass(frozen=True, slots=True)
class TracePlace:
    """Traces by their names below a place, in order; ``folder`` is where they lie on a disk, if they do.

    ``left_out`` are files that might be traces too, beside those whose names say so.
    """

    place: str
    names: Sequence[str]
    open: Callable[[str], ByteStream]
    folder: Path | None = None
    left_out: Sequence[str] = ()

    def read(self, name: str) -> Trace:
        """Read a trace of any format; raises as `read_any` and the opening do."""
        return read_any(name, lambda: self.open(name), self.folder / name if self.folder else None)


def open_traces(place: str, clients: "Clients | None" = None) -> TracePlace:
    """Find the traces at a file, a folder, or ``s3://bucket/key-or-prefix``.

    Files of PyTorch (``.pt.trace.json``), XLA (``.xplane.pb``) and Nsight Systems (``.sqlite``) count, with or without
    ``.gz``; where there is none, all ``.json`` and ``.json.gz``. Results, profiles and tensors are left out. Raises
    KernelTraceError when the place cannot be read, or holds no file that may be a trace.
    """
    return _in_bucket(place, clients) if place.startswith(S3) else _on_disk(place)


def _on_disk(place: str) -> TracePlace:
    path = Path(place)
    if path.is_file():
        return TracePlace(place, [path.name], lambda name: _opened(path.parent / name), path.parent)
    if not path.is_dir():
        raise KernelTraceError(place, "it does not exist, expected a trace, a folder of traces, or s3://bucket/prefix")
    try:
        found = [each.relative_to(path).as_posix() for each in path.rglob("*") if each.is_file()]
    except OSError as fault:
        raise KernelTraceError(place, fault.strerror or str(fault)) from fault
    names, left_out = _traces(place, found)
    return TracePlace(place, names, lambda name: _opened(path / name), path, left_out)


def _opened(file: Path) -> ByteStream:
    try:
        return file.open("rb")
    except OSError as fault:
        raise KernelTraceError(str(file), fault.strerror or str(fault)) from fault


def listed_objects(
    place: str, clients: "Clients | None", wanted: Callable[[str], bool] = bool
) -> tuple["S3ProfileObjects", str, str, list["ListedObject"]]:
    """Return S3, the bucket, the key or prefix, and the wanted keys below it; raises KernelTraceError."""
    from trainguard.aws.aws_errors import translated
    from trainguard.aws.clients import Clients
    from trainguard.aws.s3_objects import S3ProfileObjects

    bucket, _, path = place.removeprefix(S3).partition("/")
    if not bucket:
        raise KernelTraceError(place, "it names no bucket, expected s3://bucket/key or s3://bucket/prefix")
    try:
        with translated("S3", "client"):
            objects = S3ProfileObjects(client=(clients or Clients()).s3)
        return objects, bucket, path, [each for each in objects.list(bucket, path, "") if wanted(each.key)]
    except PortUnavailableError as fault:
        raise KernelTraceError(place, f"it cannot be listed: {fault}") from fault


def _in_bucket(place: str, clients: "Clients | None") -> TracePlace:
    objects, bucket, path, found = listed_objects(place, clients)
    keys = [each.key for each in found]
    left_out: list[str] = []
    if path in keys:
        above = path.rpartition("/")[0]
        prefix, names = f"{above}/" if above else "", [path.rpartition("/")[2]]
    else:
        prefix = f"{path.rstrip('/')}/" if path.strip("/") else ""
        names, left_out = _traces(place, [key.removeprefix(prefix) for key in keys if key.startswith(prefix)])
    return TracePlace(place, names, lambda name: objects.open_stream(bucket, prefix + name), left_out=left_out)


def _traces(place: str, names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the traces, and the files that are left out beside them."""
    named, perhaps = (_ending(names, endings, others) for endings, others in _NOT_TRACES.items())
    if named or perhaps:
        return (named, [name for name in perhaps if name not in named]) if named else (perhaps, [])
    reports = any(name.endswith(REPORT_ENDINGS) for name in names)
    expected = ", ".join((*NAMED_TRACES, *_PERHAPS_TRACES))
    hint = "; a report of Nsight Systems is exported with nsys export --type sqlite" if reports else ""
    raise KernelTraceError(place, f"it holds no file that ends in {expected}{hint}")


def _ending(names: Sequence[str], endings: tuple[str, ...], others: Set[str]) -> list[str]:
    found = [name for name in names if name.endswith(endings) and name.rpartition("/")[2] != DOCUMENT]
    return sorted(name for name in found if others.isdisjoint(name.split("/")[:-1]))
