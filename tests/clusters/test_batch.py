"""Job definitions of AWS Batch: the service takes them, and their variables make jobs with owner and queue."""

import json
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.validate import ParamValidator

from trainguard.engine.jobs.job_file import read_job_file
from trainguard.engine.settings.tag_names import owners_of
from trainguard_collector.ending import job_file
from trainguard_collector.names import identify
from trainguard_collector.settings import read_settings

BATCH = Path(__file__).parents[2] / "deploy" / "batch"
RUNNING = {"AWS_BATCH_JOB_ID": "9a-b", "AWS_BATCH_JQ_NAME": "p5", "AWS_BATCH_JOB_ATTEMPT": "1"}


@pytest.mark.parametrize("name", ["job-definition.json", "multi-node.json"])
def test_definition_is_taken_and_makes_an_owned_job(name: str) -> None:
    definition: dict[str, Any] = json.loads((BATCH / name).read_text())
    model = boto3.client("batch", region_name="us-east-1").meta.service_model
    shape = model.operation_model("RegisterJobDefinition").input_shape
    assert ParamValidator().validate(definition, shape).generate_report() == ""
    nodes = definition.get("nodeProperties")
    container = nodes["nodeRangeProperties"][0]["container"] if nodes else definition["containerProperties"]
    given = {each["name"]: each["value"] for each in container["environment"]} | RUNNING
    if nodes:
        given |= {"AWS_BATCH_JOB_NODE_INDEX": "1", "AWS_BATCH_JOB_NUM_NODES": str(nodes["numNodes"])}
    settings = read_settings(given, identify(given, hostname="ip-10-0-0-7"))
    assert settings is not None
    found = read_job_file("9a-b/job.json", job_file(settings, 1.0, "InProgress"), "9a-b")
    assert (found.platform, found.queue, found.resources) == ("batch", "p5", ("batch-job/9a-b",))
    assert owners_of(found.tags, {}) == {"team": "TEAM", "user": "USER"}
    assert found.instance_count == (4 if nodes else 1)
