"""Links of a job: where its report lies, and its run in other tools, which anybody may have written."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from trainguard.core.layout import ProfileRoot

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
