"""A folder or a prefix in S3 to a report, in this process."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.core.errors import ParameterFileError, PriceTableError
from trainguard.engine.installed import FAMILIES
from trainguard.local.analysis import NoProgress, Progress, evaluated_profile, report_of
from trainguard.local.api.job_report import JobReport
from trainguard.local.places import open_job
from trainguard.local.settings import GivenSettings, described_job, read_given, rule_settings
from trainguard.pricing.table import PriceTable, read_prices
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
    given = GivenSettings(
        rule_settings=_settings(parameters, defaults),
        instance_type=instance_type,
        framework_expected=framework_expected,
    )
    job, notes = described_job(profile.source, given.job(profile.root.job))
    table = prices if prices is None or isinstance(prices, PriceTable) else _read_table(os.fspath(prices))
    plan = FAMILIES.plan(job, defaults=defaults, prices=table)
    done = evaluated_profile(profile, job, plan, NoProgress() if progress is None else progress, timelines=time_lines)
    return JobReport(report_of(done), (*profile.notes, *notes, *done.training_notes, *done.kernel_notes))


def _settings(parameters: Mapping[str, Any] | str | os.PathLike[str] | None, defaults: Defaults) -> Mapping[str, str]:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        return rule_settings(os.fspath(parameters), read_given(parameters, ParameterFileError), defaults)
    try:
        body = msgspec.json.encode(parameters)
    except (TypeError, ValueError) as fault:
        raise ParameterFileError("parameters", str(fault)) from fault
    return rule_settings("parameters", body, defaults)


def _read_table(file: str) -> PriceTable:
    return read_prices(file, read_given(file, PriceTableError))
