"""Where kernel traces lie: one file, a folder of them, an object or a prefix in S3."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
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
class FilesBelow:
    """Files at or below a place with their times in epoch seconds; ``folder`` is where they lie on a disk, if they do.

    ``names`` are those of traces, in order; ``left_out`` might be traces too, beside those whose names say so.
    """

    place: str
    changed: Mapping[str, float]
    open: Callable[[str], ByteStream]
    folder: Path | None = None
    names: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def read(self, name: str) -> Trace:
        """Read a trace of any format; raises as `read_any` and the opening do."""
        return read_any(name, lambda: self._opened(name), self.folder / name if self.folder else None)

    def _opened(self, name: str) -> ByteStream:
        try:
            return self.open(name)
        except OSError as fault:
            raise KernelTraceError(name, fault.strerror or str(fault)) from fault


def open_traces(place: str, clients: "Clients | None" = None) -> FilesBelow:
    """Find the traces at a file, a folder, or ``s3://bucket/key-or-prefix``.

    Files of PyTorch (``.pt.trace.json``), XLA (``.xplane.pb``) and Nsight Systems (``.sqlite``) count, with or without
    ``.gz``; where there is none, all ``.json`` and ``.json.gz``. Results, profiles and tensors are left out. Raises
    KernelTraceError when the place cannot be read, or holds no file that may be a trace.
    """
    found = files_below(place, clients, alone=True)
    if found.names:
        return found
    names, left_out = _traces(place, list(found.changed))
    return replace(found, names=names, left_out=left_out)


def files_below(
    place: str, clients: "Clients | None", wanted: Callable[[str], bool] = bool, *, alone: bool = False
) -> FilesBelow:
    """Return the files below a folder or prefix whose names are ``wanted``; ``alone``: or the one at a file or key."""
    if place.startswith(S3):
        return _in_bucket(place, clients, wanted, alone=alone)
    path = Path(place)
    if alone and path.is_file():
        return FilesBelow(
            place, {path.name: 0.0}, lambda name: (path.parent / name).open("rb"), path.parent, [path.name]
        )
    if not path.is_dir():
        missing = (
            "does not exist, expected a trace, a folder of traces," if alone else "is no folder, expected a folder"
        )
        raise KernelTraceError(place, f"it {missing} or s3://bucket/prefix")
    try:
        found = {
            each.relative_to(path).as_posix(): each.stat().st_mtime
            for each in path.rglob("*")
            if wanted(each.name) and each.is_file()
        }
    except OSError as fault:
        raise KernelTraceError(place, fault.strerror or str(fault)) from fault
    return FilesBelow(place, found, lambda name: (path / name).open("rb"), path)


def _in_bucket(place: str, clients: "Clients | None", wanted: Callable[[str], bool], *, alone: bool) -> FilesBelow:
    from trainguard.aws.aws_errors import translated
    from trainguard.aws.clients import Clients
    from trainguard.aws.s3_objects import S3ProfileObjects

    bucket, _, path = place.removeprefix(S3).partition("/")
    if not bucket:
        raise KernelTraceError(place, "it names no bucket, expected s3://bucket/key or s3://bucket/prefix")
    try:
        with translated("S3", "client"):
            objects = S3ProfileObjects(client=(clients or Clients()).s3)
        changed = {each.key: each.last_modified for each in objects.list(bucket, path, "") if wanted(each.key)}
    except PortUnavailableError as fault:
        raise KernelTraceError(place, f"it cannot be listed: {fault}") from fault
    found = alone and path in changed
    above = path.rpartition("/")[0] if found else path.rstrip("/")
    prefix = f"{above}/" if above else ""
    mine = {
        key.removeprefix(prefix): at
        for key, at in changed.items()
        if (key == path if found else key.startswith(prefix))
    }
    return FilesBelow(
        place, mine, lambda name: objects.open_stream(bucket, prefix + name), names=list(mine) if found else ()
    )


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
