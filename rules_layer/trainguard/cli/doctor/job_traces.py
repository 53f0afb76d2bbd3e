"""One job's kernel traces: which of them the stack judges, and which it does not read, and why."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from trainguard.cli.doctor.check import Check, CheckResult
from trainguard.cli.doctor.job_case import JobCase
from trainguard.families.kernels.session import MOST_FOLDERS, state_of
from trainguard.kernels.captures.keys import (
    DATABASE_ENDINGS,
    DEEPEST,
    KERNELS,
    TRACE_ENDINGS,
    TRACE_FOLDER,
    match_below,
    match_key,
)
from trainguard.layout import RESULTS_FOLDER, ProfileRoot
from trainguard.plain_text import one_line
from trainguard.ports import ListedObject, ProfileObjects
from trainguard.rules.units import counted

TRACES = Check("kernel traces")
MOST_LOOKED_AT = 20_000
"""Objects of the job's folder, beside its system metrics and results."""

_NAMED = 3
_LONGEST = 160
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class SeenTraces:
    """The traces below a job's folder.

    Attributes
    ----------
    folders : mapping of str to int
        By the folder of their captures, how many can be judged.
    unread : mapping of str to sequence of str
        By why they are not read, the keys of the others.
    is_cut : bool
        Whether there are more objects than are looked at.
    """

    folders: Mapping[str, int]
    unread: Mapping[str, Sequence[str]]
    is_cut: bool


def look_at_traces(objects: ProfileObjects, bucket: str, root: ProfileRoot) -> SeenTraces:
    """Find the traces below a job's folder; raises PortUnavailableError."""
    listed = list(islice(_listed(objects, bucket, root), MOST_LOOKED_AT + 1))
    folders: Counter[str] = Counter()
    unread: defaultdict[str, list[str]] = defaultdict(list)
    for each in listed[:MOST_LOOKED_AT]:
        found = match_below(each.key, root)
        if found is not None:
            folders[found.folder] += 1
        elif each.key.endswith((*TRACE_ENDINGS, *DATABASE_ENDINGS)):
            unread[_why(each.key)].append(each.key)
    return SeenTraces(folders, unread, len(listed) > MOST_LOOKED_AT)


def check_traces(case: JobCase) -> Iterator[CheckResult]:
    """Judge whether a job's kernel traces are read."""
    seen = look_at_traces(case.objects, case.record.bucket, case.root)
    stream = next((each for each in case.nodes if each.key.family == KERNELS), None)
    yield from grade_traces(seen, frozenset() if stream is None else frozenset(state_of(stream).folders), case.root)


def grade_traces(seen: SeenTraces, met: Set[str], root: ProfileRoot) -> Iterator[CheckResult]:
    """Judge traces; ``met`` are the folders that the evaluator knows to have some, the newest 32."""
    more = f" among the first {MOST_LOOKED_AT:,} objects" if seen.is_cut else ""
    if not seen.folders and not seen.unread:
        yield TRACES.ok(f"no kernel traces below {_short(root.folder)}{more}")
        return
    if seen.folders:
        folders = counted(len(seen.folders), "folder")
        traces = counted(sum(seen.folders.values()), "kernel trace")
        yield TRACES.ok(f"{traces} in {folders}{more}: {_named(sorted(seen.folders))}")
    new = sorted(set(seen.folders) - met)
    if new and len(met) < MOST_FOLDERS:
        yield TRACES.warn(
            f"the evaluator does not know {counted(len(new), 'folder')} with kernel traces: {_named(new)}",
            "Their traces came before the job was known, or their messages did not arrive. Upload one of each folder "
            "again: all of the folder are then judged.",
        )
    for why, keys in sorted(seen.unread.items()):
        yield TRACES.warn(
            f"{counted(len(keys), 'file')} not read, {why}: {_named(keys)}",
            f"Copy traces to {TRACE_FOLDER}/ below the job's folder, or read them with `trainguard kernels`.",
        )


def _why(key: str) -> str:
    named = match_key(key)
    if named is not None:
        return f"as its folder names the job {named.root.job}"
    if key.endswith(DATABASE_ENDINGS):
        return f"as only databases below {TRACE_FOLDER}/ are taken for traces"
    return f"as it lies below more than {DEEPEST} folders, or a part of its path is empty"


def _listed(objects: ProfileObjects, bucket: str, root: ProfileRoot) -> Iterator[ListedObject]:
    """Yield a job's objects without its system metrics and its results, which hold no trace."""
    skipped = (root.system, f"{root.folder}{RESULTS_FOLDER}/")
    after: str | None = ""
    while after is not None:
        begin, after = after, None
        for each in objects.list(bucket, root.folder, begin):
            inside = next((folder for folder in skipped if each.key.startswith(folder)), None)
            if inside is not None and each.key < inside + _LAST:
                after = inside + _LAST
                break
            yield each


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return ", ".join(map(_short, keys[:_NAMED])) + more


def _short(key: str) -> str:
    return one_line(key, _LONGEST)
