"""Where a report lies: URIs for machines, and the console's page of the account's own partition for people."""

from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainguard.core.layout import open_command, report_links

FOLDER = "runs/bert/rule-output/TrainGuardReport/"


def arn(partition: str, region: str) -> str:
    return f"arn:{partition}:sagemaker:{region}:111122223333:training-job/bert"


@pytest.mark.parametrize(
    ("partition", "region", "host"),
    [
        ("aws", "eu-west-1", "eu-west-1.console.aws.amazon.com"),
        ("aws-us-gov", "us-gov-west-1", "console.amazonaws-us-gov.com"),
        ("aws-cn", "cn-north-1", "console.amazonaws.cn"),
    ],
)
def test_link_leads_to_the_console_of_the_partition(partition: str, region: str, host: str) -> None:
    links = report_links(job="bert", arn=arn(partition, region), bucket="profiles", prefix="runs/")
    assert (links.document, links.page) == (f"s3://profiles/{FOLDER}report.json", f"s3://profiles/{FOLDER}report.html")
    assert links.console == f"https://{host}/s3/object/profiles?region={region}&prefix={FOLDER}report.html"


@pytest.mark.parametrize(
    "unknown", ["unknown:bert", "", "arn:aws-iso:sagemaker:us-iso-east-1:1:training-job/bert", "arn:aws:x"]
)
def test_job_with_an_unknown_console_has_no_link(unknown: str) -> None:
    links = report_links(job="bert", arn=unknown, bucket="profiles", prefix="")
    assert links.console is None
    assert links.page == "s3://profiles/bert/rule-output/TrainGuardReport/report.html"


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_prefix_makes_one_url_with_the_whole_key(name: str) -> None:
    links = report_links(job="bert", arn=arn("aws", "eu-west-1"), bucket="profiles", prefix=f"{name}/")
    assert links.console is not None
    assert links.console.isascii()
    assert not set(links.console) & set(" <>\"'`{}|\\^\n\r\t")
    query = parse_qs(urlsplit(links.console).query)
    assert query["prefix"] == [f"{name}/bert/rule-output/TrainGuardReport/report.html"]


def test_opening_a_report_is_described_as_a_command() -> None:
    assert open_command("bert") == "trainguard open bert"
