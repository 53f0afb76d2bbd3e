"""Where the objects of a job lie in a bucket, and links: to its report, and to its run in other tools.

A key, and a link of a run, comes from outside and may be hostile.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote, urlencode

from trainguard.core.errors import UnreadableKeyError
from trainguard.core.text import is_plain

MAX_KEY_LENGTH = 1_024
RESULTS_FOLDER = "rule-output"
S3 = "s3://"

# A longer prefix is cut, and followed by its hash.
_LONGEST_PREFIX = 200

# A name this far ahead of its object's LastModified is no time: it must not make every real minute late.
FUTURE_S = 3_600.0

# Pattern with the group ``job``.
JOB_NAME = r"(?P<job>[A-Za-z0-9](?:-*[A-Za-z0-9]){0,62})"

# Pattern of ``<prefix><job>`` with the groups of `root_of`.
JOB_ROOT = rf"(?P<prefix>(?:[^/]+/)*){JOB_NAME}"

_JOB_FILE = re.compile(rf"(?P<prefix>(?:(?!profiler-output/)[^/]+/)*)(?!profiler-output/){JOB_NAME}/job\.json")


@dataclass(frozen=True, slots=True)
class ProfileRoot:
    """Where a job's profile lies: ``<prefix><job>/profiler-output/``; ``prefix`` is empty or ends in a slash."""

    prefix: str
    job: str

    @classmethod
    def of_job(cls, prefix: str, name: str) -> "ProfileRoot":
        """Return a job's root from its place's prefix and its name, SageMaker's or that of a place."""
        return cls(prefix, name.replace(_at(prefix), "", 1) if prefix else name)

    @classmethod
    def named(cls, name: str) -> "ProfileRoot":
        """Return a job's root as far as its name says where it lies."""
        job, _, place = name.partition("@")
        prefix = unquote(place)
        return cls(prefix, job) if prefix and _at(prefix) == f"@{place}" else cls("", name)

    @property
    def place_name(self) -> str:
        """Name of the job of this place while SageMaker does not know it."""
        return f"{self.job}{_at(self.prefix)}" if self.prefix else self.job

    @property
    def folder(self) -> str:
        return f"{self.prefix}{self.job}/"

    @property
    def system(self) -> str:
        return f"{self.prefix}{self.job}/profiler-output/system/incremental/"

    @property
    def framework_all(self) -> str:
        """Key prefix of all that frameworks write: timelines, and traces of TensorFlow's profiler after them."""
        return f"{self.prefix}{self.job}/profiler-output/framework/"

    @property
    def framework(self) -> str:
        return f"{self.framework_all}pevents/"

    @property
    def tensorflow(self) -> str:
        return f"{self.framework_all}tensorflow/detailed_profiling/"

    @property
    def job_file(self) -> str:
        """Key of the file by which a job outside SageMaker says what it is."""
        return f"{self.prefix}{self.job}/job.json"

    @property
    def collector(self) -> str:
        """Key prefix of what the collector says about itself."""
        return f"{self.folder}collector/"

    @property
    def report(self) -> str:
        return f"{self.prefix}{self.job}/rule-output/TrainGuardReport/"


@dataclass(frozen=True, slots=True)
class EndKey:
    """Marks the end of a job's stream; ``unit`` is the one unit that writes it, None where each ends itself."""

    root: ProfileRoot
    stream: str
    unit: str | None = None


def is_future(named_at: float | None, last_modified: float) -> bool:
    """Whether an object's name lies more than an hour ahead of the time at which S3 got it (epoch seconds)."""
    return named_at is not None and named_at > last_modified + FUTURE_S


def check_key(key: str) -> None:
    """Raise UnreadableKeyError, with the reason, for a key that no family reads."""
    if len(key) > MAX_KEY_LENGTH:
        raise UnreadableKeyError(key[:80] + "…", f"{len(key)} characters long, expected at most {MAX_KEY_LENGTH}")
    if not is_plain(key):
        raise UnreadableKeyError(key, "holds a line break, or a character that is not seen")
    if RESULTS_FOLDER in key.split("/"):
        raise UnreadableKeyError(key, "lies under rule-output, which holds results and not profiles")


def root_of(match: re.Match[str]) -> ProfileRoot:
    return ProfileRoot(match["prefix"], match["job"])


def parse_job_file_key(key: str) -> ProfileRoot | None:
    """Return whose job file a key is; None for any other object."""
    if len(key) > MAX_KEY_LENGTH or not is_plain(key) or RESULTS_FOLDER in key.split("/"):
        return None
    match = _JOB_FILE.fullmatch(key)
    return None if match is None else root_of(match)


def hour_folder(epoch_s: int) -> str:
    """Return the UTC hour folder ``YYYYMMDDHH`` of a time in epoch seconds."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y%m%d%H")


@lru_cache(maxsize=256)
def _at(prefix: str) -> str:
    """Escape a prefix to letters, digits and ``/ = + _ - % ~``, so that the name can be pasted into a shell."""
    encoded = quote(prefix, safe="/=+").replace(".", "%2E").replace("~", "%7E")
    if len(encoded) > _LONGEST_PREFIX:
        encoded = f"{encoded[: _LONGEST_PREFIX - 40]}~{sha256(prefix.encode()).hexdigest()[:32]}/"
    return f"@{encoded}"


REPORT_JSON = "report.json"
REPORT_PAGE = "report.html"
KERNEL_PAGE = "kernels.html"

_CONSOLES = {
    "aws": "https://{region}.console.aws.amazon.com",
    "aws-us-gov": "https://console.amazonaws-us-gov.com",
    "aws-cn": "https://console.amazonaws.cn",
}


@dataclass(frozen=True, slots=True)
class ReportLinks:
    """S3 URIs of ``report.json`` and ``report.html``, and the console's page; None where the ARN does not name one."""

    document: str
    page: str
    console: str | None


def report_links(*, job: str, arn: str, bucket: str, prefix: str) -> ReportLinks:
    folder = ProfileRoot.of_job(prefix, job).report
    place = f"s3://{bucket}/{folder}"
    return ReportLinks(place + REPORT_JSON, place + REPORT_PAGE, _console(arn, bucket, folder + REPORT_PAGE))


def kernel_page_link(*, job: str, arn: str, bucket: str, prefix: str) -> str | None:
    """Return the console's page of a job's ``kernels.html``; None where the job's ARN does not say which console."""
    return _console(arn, bucket, ProfileRoot.of_job(prefix, job).report + KERNEL_PAGE)


def open_command(job: str) -> str:
    return f"trainguard open {job}"


def _console(arn: str, bucket: str, key: str) -> str | None:
    parts = arn.split(":")
    console = _CONSOLES.get(parts[1]) if len(parts) > 3 and parts[3] else None
    if console is None:
        return None
    region = quote(parts[3], safe="")
    query = urlencode({"region": parts[3], "prefix": key}, quote_via=quote, safe="/")
    return f"{console.format(region=region)}/s3/object/{quote(bucket, safe='')}?{query}"


RUN_URL_TAG = "trainguard:run-url"
LONGEST_LINK = 1_000
OWN, MLFLOW, WANDB = "run", "MLflow", "Weights & Biases"
TOOLS = (OWN, MLFLOW, WANDB)

_HTTPS = re.compile(
    r"https://[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?(?::\d{1,5})?"
    r"(?:[/?#][A-Za-z0-9._~:/?#&+,;=%-]*)?",
    re.ASCII,
)
_WANDB_SITE, _WANDB_API = "https://wandb.ai", "https://api.wandb.ai"
_MLFLOW_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_RUN_OF_LINK = re.compile(r".*/runs/([A-Za-z0-9_-]{1,64})/?", re.ASCII)


def run_links(sources: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Return the links of a job by tool; the first source with a value counts, and only known names are read."""
    given = list(sources)
    values = {name: _value(name, given) for name in _NAMES}
    made = {OWN: values[RUN_URL_TAG], MLFLOW: _mlflow(values), WANDB: _wandb(values)}
    return {tool: link for tool, link in made.items() if is_plain_link(link)}


def is_plain_link(link: str) -> bool:
    """Whether a link is https, of bounded length, without credentials and without markup."""
    return len(link) <= LONGEST_LINK and _HTTPS.fullmatch(link) is not None


def plain_links(links: Mapping[str, str]) -> dict[str, str]:
    return {tool: links[tool] for tool in TOOLS if tool in links and is_plain_link(links[tool])}


def mlflow_run_of(links: Mapping[str, str]) -> str | None:
    found = _RUN_OF_LINK.fullmatch(links.get(MLFLOW, ""))
    return None if found is None else found[1]


_NAMES = (
    RUN_URL_TAG,
    "MLFLOW_TRACKING_URI",
    "MLFLOW_EXPERIMENT_ID",
    "MLFLOW_RUN_ID",
    "WANDB_BASE_URL",
    "WANDB_ENTITY",
    "WANDB_PROJECT",
    "WANDB_RUN_ID",
)


def _value(name: str, sources: Iterable[Mapping[str, str]]) -> str:
    """Return a value without blanks; SageMaker's SDK writes texts among hyperparameters in quotation marks."""
    found = (each[name].strip().strip('"') for each in sources if isinstance(each.get(name), str))
    return next(filter(None, found), "")


def _mlflow(values: Mapping[str, str]) -> str:
    server, run = values["MLFLOW_TRACKING_URI"], values["MLFLOW_RUN_ID"]
    experiment = values["MLFLOW_EXPERIMENT_ID"]
    if not server or not _MLFLOW_RUN.fullmatch(run) or "#" in server:
        return ""
    within = f"experiments/{experiment}/" if experiment.isascii() and experiment.isdigit() else ""
    return f"{server.rstrip('/')}/#/{within}runs/{run}"


def _wandb(values: Mapping[str, str]) -> str:
    parts = [values[name] for name in ("WANDB_ENTITY", "WANDB_PROJECT", "WANDB_RUN_ID")]
    if not all(parts):
        return ""
    site = values["WANDB_BASE_URL"].rstrip("/") or _WANDB_SITE
    entity, project, run = (quote(part, safe="") for part in parts)
    return f"{_WANDB_SITE if site == _WANDB_API else site}/{entity}/{project}/runs/{run}"
