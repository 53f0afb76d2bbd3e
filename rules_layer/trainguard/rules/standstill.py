"""What the dumps and stacks of a job that stands still say about its ranks, as rules, rows and pages have it."""

import msgspec

# Culprits that are kept; ``culprits`` counts all.
MOST_KNOWN = 16


class KnownRank(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A rank that others wait for, and the node that its files, or those of its neighbours, lie under.

    kind: As of the verdict on a hang, for example ``not_entered``. operation, group, sequence: What it is in itself, or
    entered last. line, doing: Where its code is, and what is done there. waiting: Ranks that wait for it.
    """

    rank: int
    kind: str
    node: str = ""
    operation: str = ""
    group: str = ""
    sequence: int | None = None
    line: str = ""
    doing: str = ""
    waiting: int = 0


class KnownHang(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Who holds up a job. version: Names the files that say it. at: When the newest was written, epoch seconds.

    named: The culprits, the most certain first. culprits, waiting, without_dump, ranks: How many there are.
    operation, group, sequence: What the others wait in; empty and None where unknown. waiting_line: Where they wait.
    files: How many say it. unread: How many could not be read. left_out: How many there was no time for.
    """

    version: str = ""
    at: float = 0.0
    named: tuple[KnownRank, ...] = ()
    culprits: int = 0
    waiting: int = 0
    without_dump: int = 0
    ranks: int = 0
    operation: str = ""
    group: str = ""
    sequence: int | None = None
    waiting_line: str = ""
    files: int = 0
    unread: int = 0
    left_out: int = 0
