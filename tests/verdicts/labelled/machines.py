"""Instance types of the labelled jobs, with prices of their own: labels in money must not move with a price list."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance type: its GPUs, logical cores, and what an hour of it costs in the labels."""

    instance_type: str
    gpus: int
    cores: int
    usd_per_hour: float


G5_XLARGE = Machine("ml.g5.xlarge", 1, 4, 1.40)
G5_2XLARGE = Machine("ml.g5.2xlarge", 1, 8, 1.50)
P3_2XLARGE = Machine("ml.p3.2xlarge", 1, 8, 3.80)
P3_8XLARGE = Machine("ml.p3.8xlarge", 4, 32, 14.70)
G5_12XLARGE = Machine("ml.g5.12xlarge", 4, 48, 7.00)
P3_16XLARGE = Machine("ml.p3.16xlarge", 8, 64, 28.00)
P4D = Machine("ml.p4d.24xlarge", 8, 96, 38.00)
C5_4XLARGE = Machine("ml.c5.4xlarge", 0, 16, 0.80)
C5_18XLARGE = Machine("ml.c5.18xlarge", 0, 72, 3.70)
# No such instance exists: with few cores, a job on two GPUs can be sampled every 0.1 s in little time.
TWO_GPUS = Machine("ml.two-gpus", 2, 8, 3.00)

MACHINES = (
    *(G5_XLARGE, G5_2XLARGE, P3_2XLARGE, P3_8XLARGE, G5_12XLARGE, P3_16XLARGE, P4D),
    *(C5_4XLARGE, C5_18XLARGE, TWO_GPUS),
)


def price_table() -> dict[str, Any]:
    """Return the prices in the form that `trainguard analyze --prices` reads."""
    dated = {"source": "prices of the labelled jobs", "date": "2026-11-01"}
    rows = {machine.instance_type: {"per_hour": machine.usd_per_hour, **dated} for machine in MACHINES}
    return {"region": "us-east-1", "currency": "USD", "instances": rows}
