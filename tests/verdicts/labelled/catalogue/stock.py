"""What descriptions are put together from: ordinary loads, and a job that starts, trains and ends."""

from dataclasses import replace

from tests.verdicts.labelled.description import Load, Piece

QUIET = Load(busy=0.0, memory=0.0, cores=3.0, received=4e4, read=4e5)
STARTING = Load(busy=0.0, memory=0.0, cores=14.0, received=6e7, read=9e7)
UPLOADING = Load(busy=0.0, memory=0.0, cores=8.0, received=4e6, read=5e7)
HEALTHY = Load()
# A GPU that waits for others in a collective operation: the driver calls it busy.
SPINNING = Load(busy=99.7, spread=0.5, drift=0.2)

START_MIN = 2.0
END_MIN = 1.0
# Minutes of an ordinary job in which it does not train.
AROUND_MIN = START_MIN + END_MIN


def ordinary(minutes: float, load: Load = HEALTHY, *later: Piece, start_min: float = START_MIN) -> tuple[Piece, ...]:
    """Return a job that starts, trains with ``load`` and uploads its model; ``later`` happens on the way."""
    return (
        Piece(load=STARTING),
        Piece(load=load, start_min=start_min),
        *later,
        Piece(load=UPLOADING, start_min=minutes - END_MIN),
    )


def starved(wait: float, *, cycle_s: float = 3.0, cores: float = 12.0) -> Load:
    """Return GPUs that wait for data while the cores are free."""
    return Load(wait=wait, cycle_s=cycle_s, cores=cores, process=5.0 + 65.0 * (1.0 - wait))


def starved_by_cores(wait: float, *, cycle_s: float = 3.0, full: float = 1.0) -> Load:
    """Return GPUs that wait while a share of the cores is full."""
    return replace(starved(wait, cycle_s=cycle_s, cores=22.0), full_cores=full)


def starved_by_disk(wait: float, *, cycle_s: float = 3.0, waiting: float = 0.5) -> Load:
    """Return GPUs that wait while a share of the cores waits for a disk."""
    return replace(starved(wait, cycle_s=cycle_s), io_cores=waiting, io_wait=76.0, read=1.2e8)
