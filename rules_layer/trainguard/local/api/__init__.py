"""The Python API: a profile evaluated in this process, and its report as an object."""

from trainguard.local.api.analyze import analyze
from trainguard.local.api.job_report import Columns, JobReport

__all__ = ["Columns", "JobReport", "analyze"]
