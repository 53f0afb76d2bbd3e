"""What a person gave for jobs that are evaluated here."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from trainguard.core.errors import (
    JobFileError,
    ParameterFileError,
    PortUnavailableError,
    PriceTableError,
    ProfileSourceError,
    TrainGuardError,
)
from trainguard.core.records import OUTSIDE_ARN, JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_file import MAX_BYTES, read_job_file
from trainguard.engine.settings.job_settings import TIME_LIMIT, TOTAL_STEPS
from trainguard.engine.settings.parsers import read_steps, read_time_limit_s
from trainguard.engine.settings.tag_names import NAMESPACE, owners_of
from trainguard.local.sources import ProfileSource
from trainguard.pricing.table import PriceTable, read_prices
from trainguard.rules.family_rules import TRAINING_NAMES
from trainguard.rules.parameters import Defaults, read_parameter_file


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSettings:
    """What a person gave for jobs that are evaluated here; ``prices`` None stands for the packaged table."""

    rule_settings: Mapping[str, str] = field(default_factory=dict)
    instance_type: str | None = None
    framework_expected: bool = False
    prices: PriceTable | None = None

    def job(self, name: str) -> JobRecord:
        """Return the item of a job of which nothing else is known."""
        return JobRecord(
            job=name,
            arn=f"{OUTSIDE_ARN}{name}",
            bucket="",
            prefix="",
            instance_type=self.instance_type,
            framework_expected=self.framework_expected,
            rule_settings=self.rule_settings,
        )


File = str | os.PathLike[str]


def read_given(file: File, fault_of: Callable[[str, str], TrainGuardError]) -> bytes:
    """Return the content of a file that a person names; ``fault_of`` is the error of its name and a reason."""
    try:
        return Path(file).read_bytes()
    except OSError as fault:
        raise fault_of(os.fspath(file), fault.strerror or str(fault)) from fault


def given_settings(
    parameters: Mapping[str, Any] | File | None,
    prices: PriceTable | File | None,
    instance_type: str | None,
    *,
    framework_expected: bool = False,
    defaults: Defaults = "documented",
) -> GivenSettings:
    """Return the settings for jobs that are judged here; raises as `rule_settings` and `prices_from` do."""
    return GivenSettings(
        rule_settings=rule_settings(parameters, defaults),
        instance_type=instance_type,
        framework_expected=framework_expected,
        prices=prices_from(prices),
    )


def prices_from(given: PriceTable | File | None) -> PriceTable | None:
    """Return a table, or that of a file; raises PriceTableError."""
    if given is None or isinstance(given, PriceTable):
        return given
    return read_prices(os.fspath(given), read_given(given, PriceTableError))


def rule_settings(given: Mapping[str, Any] | File | None, defaults: Defaults = "documented") -> Mapping[str, str]:
    """Return the rule settings of parameters, or of a JSON file of them.

    A rule of training that cannot take its settings is in error alone, as in the managed service. Raises
    ParameterFileError or RuleConfigError when the document or a setting of another rule cannot be used.
    """
    if given is None:
        return {}
    name = "parameters" if isinstance(given, Mapping) else os.fspath(given)
    try:
        body = msgspec.json.encode(given) if isinstance(given, Mapping) else read_given(given, ParameterFileError)
    except (TypeError, ValueError) as fault:
        raise ParameterFileError(name, str(fault)) from fault
    settings = read_parameter_file(name, body)
    alone = JobRecord(job="", arn="", bucket="", prefix="", rule_settings=settings)
    faults = FAMILIES.plan(alone, defaults=defaults).faults
    if refused := [str(fault) for rule, fault in faults.items() if rule not in TRAINING_NAMES]:
        raise ParameterFileError(name, "; ".join(refused))
    return settings


JOB_FILE = "job.json"
# As the deployed stack counts it.
BAD_JOB_FILES = "bad_job_files"


def described_job(source: ProfileSource, job: JobRecord) -> tuple[JobRecord, list[str]]:
    """Fill in what is not known of a job from the file beside its profile; a person's options hold.

    Parameters of rules are not taken from the file, and of its tags only whose the job is and how long it will be. A
    bad file, which ``file_fault`` names, changes nothing. The notes say what people must know of the file.
    """
    try:
        body = source.beside(JOB_FILE, MAX_BYTES)
        if body is None:
            return job, []
        described = read_job_file(JOB_FILE, body, None)
    except JobFileError as fault:
        return _not_used(job, str(fault))
    except (ProfileSourceError, PortUnavailableError) as fault:
        return _not_used(job, f"{JOB_FILE} beside the profile: {fault}")
    filled = replace(
        job,
        status=described.status if described.status.is_final else job.status,
        instance_type=job.instance_type or described.instance_type,
        instance_count=job.instance_count or described.instance_count,
        started_at=described.started_at if job.started_at is None else job.started_at,
        ended_at=described.ended_at if job.ended_at is None else job.ended_at,
        framework_expected=job.framework_expected or described.framework_profiling,
        owners=job.owners or owners_of(described.tags, {}),
        run_links=job.run_links or described.run_links,
        platform=job.platform or described.platform,
        queue=job.queue or described.queue,
        total_steps=job.total_steps or read_steps(described.tags.get(f"{NAMESPACE}{TOTAL_STEPS}", "")),
        time_limit_s=job.time_limit_s or read_time_limit_s(described.tags.get(f"{NAMESPACE}{TIME_LIMIT}", "")),
    )
    other = f"{JOB_FILE} beside the profile is of job {described.job}, and the folder is called {source.job}."
    return filled, [] if described.job == source.job else [other]


def _not_used(job: JobRecord, why: str) -> tuple[JobRecord, list[str]]:
    return replace(job, file_fault=why), [f"Not used: {why}."]
