"""The order of a node's framework objects: by the end of an object's last event, in microseconds.

A partition is a process and file kind: files are rotated after a minute or when they are full.
"""

from trainguard.engine.ordering.partition_order import Extents

LATENESS_US = 120_000_000
LIST_EVERY_US = 50_000_000
"""Less than a rotation, so that one process does not wait."""

SILENT_US = 600_000_000
FORGOTTEN_US = 3_600_000_000

FRAMEWORK_EXTENTS = Extents(lateness=LATENESS_US, list_every=LIST_EVERY_US, silent=SILENT_US, forgotten=FORGOTTEN_US)
