"""Which files are snapshots of the allocator by their names, and who wrote them.

Programs name them in many ways: ``rank0_memory_snapshot.pickle`` in ``iteration_100/`` (torchtitan),
``rank0.100.pt.trace.memory_snapshot.pickle`` (Composer), ``<host>_Nov_28_17_24_40.pickle`` (PyTorch's tutorial),
``memory_snapshot_rank0_step6.pkl``. The newest of a writer counts, so a writer is the name without step and time.
"""

import re

SNAPSHOT_FORMS = (".pickle", ".pkl")
SNAPSHOT_ENDINGS = (*SNAPSHOT_FORMS, *(f"{form}.gz" for form in SNAPSHOT_FORMS))
# Any program writes pickles: outside of the folder for traces those are snapshots that have one of these in a name.
SNAPSHOT_WORDS = ("memory", "snapshot")

JSON_FORMS = ("memory_snapshot.json", "memory_timeline.json", "memory_timeline.raw.json")
# Any program writes JSON: it is a snapshot, or a timeline of `torch.profiler`, where a name ends so, in any folder.
JSON_ENDINGS = (*JSON_FORMS, *(f"{form}.gz" for form in JSON_FORMS))

_NAMED = re.compile(rf"(?:.*[._-])?(?:{'|'.join(SNAPSHOT_WORDS)}).*")
_ENDING = re.compile(r"\.(?:pickle|pkl|(?:raw\.)?json)(?:\.gz)?$")

_STEP = r"(?:global[-_]?)?(?:step|iteration|iter|epoch|batch|ep|ba|it)s?[-_=]?\d+(?:[-_]exit)?"
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
_TIME = rf"\d{{10,19}}|\d{{4}}[-_]?\d\d[-_]?\d\d(?:[-_t]?\d\d[-_]?\d\d[-_]?\d\d)?|{_MONTH}[-_]\d\d?(?:[-_]\d\d){{3}}"
_MOMENT = re.compile(rf"(?<![a-z0-9])(?:{_STEP}|{_TIME})(?![a-z0-9])", re.IGNORECASE)
_RANK = re.compile(r"(?<![a-z0-9])rank[-_= ]?0*(\d{1,9})(?:\.\d+(?![a-z0-9]))?", re.IGNORECASE)
_FOLDER_OF_RANK = re.compile(r"rank[-_=]?(\d{1,9})", re.IGNORECASE)
_WHAT = frozenset({"memory", "mem", "snapshot", "oom", "dump", "exit", "allocator", "cuda", "pt", "trace"})


def is_snapshot_name(key: str) -> bool:
    if key.endswith(JSON_ENDINGS):
        return True
    file = key.rpartition("/")[2]
    return file.endswith(SNAPSHOT_ENDINGS) and _NAMED.fullmatch(file) is not None


def is_moment(part: str) -> bool:
    """Whether a folder is named by a step or a time, so that a writer has files in several such folders."""
    return _MOMENT.fullmatch(part) is not None


def snapshot_writer(folders: list[str], file: str) -> str:
    """Return who wrote a snapshot, from its folders of one unit each and its name.

    A timeline is another thing than a snapshot, so that the newer one of both does not replace the other.
    """
    stem = _RANK.sub(r"rank\1", _MOMENT.sub("", _ENDING.sub("", file)))
    words = [word for word in re.split(r"[._-]+", stem) if word and word.lower() not in _WHAT]
    return "/".join([*(part for part in folders if not is_moment(part)), "_".join(words)])


def rank_of(name: str) -> int | None:
    """Return the rank that a snapshot's path names: the file's, else that of a folder of one rank."""
    *folders, file = name.split("/")
    found = _RANK.findall(file)
    if found:
        return int(found[-1])
    matches = (_FOLDER_OF_RANK.fullmatch(part) for part in reversed(folders))
    return next((int(match[1]) for match in matches if match), None)
