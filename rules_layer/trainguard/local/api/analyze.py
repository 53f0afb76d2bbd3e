"""A folder or a prefix in S3 to a report, in this process."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainguard.engine.installed import FAMILIES
from trainguard.local.analysis import Progress, evaluated_profile, report_of
from trainguard.local.api.job_report import JobReport
from trainguard.local.places import open_job
from trainguard.local.settings import described_job, given_settings
from trainguard.pricing.table import PriceTable
from trainguard.rules.parameters import Defaults

if TYPE_CHECKING:
    from trainguard.aws.clients import Clients


def analyze(
    source: str | os.PathLike[str],
    *,
    parameters: Mapping[str, Any] | str | os.PathLike[str] | None = None,
    prices: PriceTable | str | os.PathLike[str] | None = None,
    instance_type: str | None = None,
    framework_expected: bool = False,
    defaults: Defaults = "documented",
    time_lines: bool = True,
    clients: "Clients | None" = None,
    progress: Progress | None = None,
) -> JobReport:
    """Evaluate the profile of a job by all rules, as ``trainguard analyze`` and ``trainguard report`` do.

    ``source`` is the folder of the profile, or ``s3://bucket/prefix``, which needs boto3 and is read with ``clients``.
    ``parameters`` are for example ``{"<Rule>": {"<parameter>": 60}}``, or a JSON file of them; rules that are not given
    have ``defaults``. ``prices`` are by default the packaged table, ``instance_type`` what ``job.json`` beside the
    profile says. Without ``time_lines``, `JobReport.time_lines` and `steps` are empty.

    Raises ProfileSourceError or NoProfileError when no single profile is there; ParameterFileError, RuleConfigError or
    PriceTableError when parameters or prices cannot be used; PortUnavailableError; WorkerDiedError.
    """
    profile = open_job(os.fspath(source), clients)
    given = given_settings(parameters, prices, instance_type, framework_expected=framework_expected, defaults=defaults)
    job, notes = described_job(profile.source, given.job(profile.root.job))
    plan = FAMILIES.plan(job, defaults=defaults, prices=given.prices)
    done = evaluated_profile(profile, job, plan, progress, timelines=time_lines)
    return JobReport(report_of(done), (*profile.notes, *notes, *done.training_notes, *done.kernel_notes))
