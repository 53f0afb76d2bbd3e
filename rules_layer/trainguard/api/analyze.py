"""A folder or a prefix in S3 to a report, in this process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from trainguard.api.job_report import JobReport
from trainguard.errors import ParameterFileError, PriceTableError
from trainguard.families.installed import FAMILIES
from trainguard.local.analysis import NoProgress, Progress, evaluated_profile
from trainguard.local.job_json import described_job
from trainguard.local.places import open_job
from trainguard.local.settings import rule_settings
from trainguard.pricing.table import PriceTable, read_prices
from trainguard.records import JobRecord
from trainguard.rules.defaults import Defaults

if TYPE_CHECKING:
    from trainguard.adapters.clients import Clients


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

    Parameters
    ----------
    source : str or path
        The folder of the profile, or ``s3://bucket/prefix``, which needs boto3.
    parameters : mapping or path, optional
        Parameters of rules, for example ``{"<Rule>": {"<parameter>": 60}}``, or a JSON file of them.
    prices : PriceTable or path, optional
        By default the packaged table.
    instance_type : str, optional
        For costs. By default what ``job.json`` beside the profile says.
    framework_expected : bool
        Whether the job should have written framework metrics.
    defaults : {"documented", "shipped"}
        Parameters of rules that are not given.
    time_lines : bool
        Whether to put the profile over time: without it `JobReport.time_lines` and `steps` are empty.
    clients : Clients, optional
        With which S3 is read.
    progress : Progress, optional

    Raises
    ------
    ProfileSourceError, NoProfileError
        When no single profile is there.
    ParameterFileError, RuleConfigError, PriceTableError
        When parameters or prices cannot be used.
    PortUnavailableError, WorkerDiedError
        When S3 does not answer, or a parsing process ends without an answer.
    """
    profile = open_job(os.fspath(source), clients)
    name = profile.root.job
    known = JobRecord(
        job=name,
        arn=f"unknown:{name}",
        bucket="",
        prefix="",
        instance_type=instance_type,
        framework_expected=framework_expected,
        rule_settings=_settings(parameters, defaults),
    )
    described = described_job(profile.source, known)
    plan = FAMILIES.plan(described.job, defaults=defaults, prices=_prices(prices))
    shown = NoProgress() if progress is None else progress
    judged = evaluated_profile(profile, described.job, plan, shown, timelines=time_lines)
    notes = (*profile.notes, *(() if described.note is None else (described.note,)), *judged.notes)
    return JobReport(judged.report(), notes)


def _settings(parameters: Mapping[str, Any] | str | os.PathLike[str] | None, defaults: Defaults) -> Mapping[str, str]:
    if parameters is None:
        return {}
    if not isinstance(parameters, Mapping):
        name = os.fspath(parameters)
        try:
            return rule_settings(name, Path(name).read_bytes(), defaults)
        except OSError as fault:
            raise ParameterFileError(name, fault.strerror or str(fault)) from fault
    try:
        body = msgspec.json.encode(parameters)
    except (TypeError, ValueError) as fault:
        raise ParameterFileError("parameters", str(fault)) from fault
    return rule_settings("parameters", body, defaults)


def _prices(prices: PriceTable | str | os.PathLike[str] | None) -> PriceTable | None:
    if prices is None or isinstance(prices, PriceTable):
        return prices
    name = os.fspath(prices)
    try:
        return read_prices(name, Path(name).read_bytes())
    except OSError as fault:
        raise PriceTableError(name, fault.strerror or str(fault)) from fault
