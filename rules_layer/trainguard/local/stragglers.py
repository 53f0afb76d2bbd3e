"""Tables of operations of a parallel job, in a file, a folder or below a prefix of S3, and what stragglers cost it."""

import zlib
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trainguard.core.errors import (
    KernelTraceError,
    ObjectMissingError,
    PortUnavailableError,
    ProfileSourceError,
    RemedyError,
    TelemetryFormatError,
)
from trainguard.core.text import one_line
from trainguard.formats.operations import MOST_ROWS, OperationTable, read_operations, together
from trainguard.local.traces import FilesBelow, files_below
from trainguard.pricing.table import PriceTable
from trainguard.stragglers.text import with_words
from trainguard.stragglers.verdict import Price, StragglerVerdict, straggler_verdict

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients

# Bytes of a file, unpacked: ten million rows of CSV.
MOST_BYTES = 2 * 1024**3

MOST_FILES = 10_000

_ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson", ".csv.gz", ".jsonl.gz", ".ndjson.gz")
_GZIP = b"\x1f\x8b"
_EXPECTED = (
    "A table has a row for each operation, with columns rank, step, optype, start_ts and duration (seconds), and for "
    "pipelines dp_rank, stage and mb_id; as Parquet, CSV or JSON lines."
)


def price_of(instance_type: str, nodes: int, hours: float | None, prices: PriceTable) -> Price | None:
    """Return what a job costs, in an hour where ``hours`` is None; None where its instances have no known price."""
    hourly = prices.hourly(instance_type)
    if hourly is None:
        return None
    return Price(currency=prices.currency, spent=hourly * nodes * (hours or 1.0), hours=hours)


def judge_stragglers(place: str, price: Price | None = None, clients: "Clients | None" = None) -> StragglerVerdict:
    """Judge the tables at a file, a folder or ``s3://bucket/prefix``; raises RemedyError where none can be replayed."""
    try:
        found = files_below(place, clients, alone=True)
    except KernelTraceError as fault:
        raise RemedyError(f"{fault.place!r} cannot be read: {fault.reason}", _EXPECTED) from fault
    unread: dict[str, str] = {}
    faults: Counter[str] = Counter()
    tables = _tables(found, unread, faults)
    if not tables:
        said = "".join(f" {name}: {reason}." for name, reason in list(unread.items())[:3])
        raise RemedyError(f"{place!r} holds no table of operations.{said}".rstrip("."), _EXPECTED)
    _refuse_several_jobs(place, tables)
    verdict = straggler_verdict(together(list(tables.values())), faults)
    if isinstance(verdict, Counter):
        said = ", ".join(f"{name} ({count:,})" for name, count in verdict.most_common()) or "no operation lasts"
        raise RemedyError(
            f"No step of {place!r} can be replayed: {said}", "Every rank's operations of a step have to be there."
        )
    if price is not None and verdict.causes:
        price = msgspec.structs.replace(price, lost=price.spent * max(verdict.causes[0].saves, 0.0))
    return with_words(msgspec.structs.replace(verdict, unread=unread, price=price))


def _refuse_several_jobs(place: str, tables: Mapping[str, OperationTable]) -> None:
    """Raise RemedyError where two tables have one rank in one step: they are of several jobs, or one is a copy."""
    taken: dict[tuple[int, int], str] = {}
    for name, table in tables.items():
        for rank, step in np.unique(np.stack([table.rank, table.step]), axis=1).T.tolist():
            other = taken.setdefault((rank, step), name)
            if other != name:
                raise RemedyError(
                    f"{place!r} holds several jobs: {other} and {name} both have rank {rank} in step {step}",
                    "Give the table, or the folder, of one job.",
                )


def _tables(found: FilesBelow, unread: dict[str, str], faults: Counter[str]) -> dict[str, OperationTable]:
    """Return the tables by name, and count what of them could not be read; a folder's other files are left out."""
    names = sorted(found.names or (name for name in found.changed if name.lower().endswith(_ENDINGS)))
    tables: dict[str, OperationTable] = {}
    for name in names[:MOST_FILES]:
        try:
            table, more = read_operations(_contents(found, name), name)
        except TelemetryFormatError as fault:
            unread[one_line(name, 200)] = one_line(fault.reason, 600)
            continue
        except (OSError, ObjectMissingError, PortUnavailableError, ProfileSourceError, zlib.error) as fault:
            unread[one_line(name, 200)] = one_line(str(fault), 400)
            continue
        if sum(map(len, tables.values())) + len(table) > MOST_ROWS:
            unread[one_line(name, 200)] = f"makes more than {MOST_ROWS:,} rows of all files together"
            continue
        tables[name] = table
        faults.update(more)
    if len(names) > MOST_FILES:
        unread["…"] = f"{len(names) - MOST_FILES:,} more files, expected at most {MOST_FILES:,}"
    return tables


def _contents(found: FilesBelow, name: str) -> bytes:
    with found.open(name) as opened:
        data: bytes = opened.read(MOST_BYTES + 1)
    if data[:2] == _GZIP:
        data = zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise TelemetryFormatError(name, f"has over {MOST_BYTES:,} bytes, expected fewer")
    return data
