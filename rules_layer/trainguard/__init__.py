"""TrainGuard: rules, reports and safe stops for training jobs, from profiles in S3.

Examples
--------
``trainguard.analyze`` evaluates the profile in a folder or in S3 and returns its report::

    report = trainguard.analyze("./my-job", instance_type="ml.p3.8xlarge")
    print(report.verdict.health)
    report.findings.to_pandas()
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainguard.local.api import Columns, JobReport, analyze

__all__ = ["Columns", "JobReport", "analyze"]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import the Python API when a name of it is first used: no function of the stack pays for it."""
    if name not in __all__:
        raise AttributeError(f"module 'trainguard' has no attribute {name!r}")
    return getattr(importlib.import_module("trainguard.local.api"), name)


def __dir__() -> list[str]:
    """Return the names of the Python API."""
    return sorted(__all__)
