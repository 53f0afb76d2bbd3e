"""How much of a trace is read at most: real traces are far below, and a hostile one ends in one clear error."""

MOST_ROWS = 40_000_000
"""Rows of all sorts together: about 3 GB of columns."""

MOST_NAME_BYTES = 256 * 1024 * 1024
"""Bytes of all names together."""

MOST_COLLECTIVES = 10_000
"""Sorts of collectives: operation, group and type."""

MOST_COLLECTIVE_CALLS = 1_000_000
"""Operators that call a collective."""

LONGEST_NAME = 16 * 1024
"""Characters of one name; a longer one is cut."""

MOST_GROWTH = 400
"""A gzip stream of a trace grows 12 to 40 times; one that grows more often than that is a bomb."""

GROWTH_FROM_BYTES = 64 * 1024 * 1024
"""Text up to which growth is not judged."""

LONGEST_NS = 7 * 24 * 3600 * 1_000_000_000
"""A longer event is a broken one: HTA, too, drops it."""

LATEST_NS = 1 << 62
"""A later time, in 2116, is a broken one."""
