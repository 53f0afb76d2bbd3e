"""The Python API: a profile evaluated in this process, and its report as an object."""

from trainguard.api.analyze import analyze
from trainguard.api.columns import Columns
from trainguard.api.job_report import JobReport

__all__ = ["Columns", "JobReport", "analyze"]
