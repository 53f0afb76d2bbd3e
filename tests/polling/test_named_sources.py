"""The setting ``source``: what it may name, and that it reaches a job's item."""

import pytest

from trainguard.engine.settings.job_settings import resolve
from trainguard.engine.settings.sources import tag_source
from trainguard.formats.runs.named import LONGEST, NamedSource, named_source


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            "prometheus pod=bert-0 namespace=ml",
            NamedSource("prometheus", matchers='pod="bert-0",namespace="ml"'),
        ),
        (
            "prometheus https://prom:9090/a pod=~bert-.* node!=gone step=30s",
            NamedSource("prometheus", "https://prom:9090/a", matchers='pod=~"bert-.*",node!="gone"', step_s=30.0),
        ),
        ('prometheus pod=a"b\\c', NamedSource("prometheus", matchers='pod="a\\"b\\\\c"')),
        (
            "prometheus pod=a node_label=@resource.host.name",
            NamedSource("prometheus", matchers='pod="a"', node_label="@resource.host.name"),
        ),
        ("mlflow run=0a1b", NamedSource("mlflow", run="0a1b")),
        (
            "mlflow arn:aws:sagemaker:eu-west-1:111122223333:mlflow-tracking-server/a run=0a1b",
            NamedSource("mlflow", "arn:aws:sagemaker:eu-west-1:111122223333:mlflow-tracking-server/a", run="0a1b"),
        ),
        ("logs", NamedSource("logs")),
        (
            "logs /aws/batch/job metric=loss:Loss\\s=([0-9.]+) stream=train/ metric=eval/f1:F1:(.+)",
            NamedSource(
                "logs",
                "/aws/batch/job",
                stream="train/",
                metrics=(("loss", "Loss\\s=([0-9.]+)"), ("eval/f1", "F1:(.+)")),
            ),
        ),
        ("logs /aws/batch/job stream=train/default/", NamedSource("logs", "/aws/batch/job", stream="train/default/")),
    ],
)
def test_given_a_source_when_read_then_its_parts_are_known(text: str, named: NamedSource) -> None:
    assert named_source(text) == named


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prometheus",
        "prometheus https://prom",
        "prometheus pod",
        "prometheus pod=a step=0.5",
        "prometheus pod=a step=61",
        "prometheus pod=a step=~15",
        "prometheus pod=a node_label=~rack",
        'prometheus pod=a node_label=a"b',
        "prometheus /aws/batch/job pod=a",
        "prometheus pod=a} or vector(1){",
        "prometheus 1=a",
        "mlflow",
        "mlflow run=a/b",
        "mlflow run=~a",
        "mlflow run=a run=b",
        "logs https://host",
        "logs group=a",
        "logs stream=a:*",
        "logs metric=loss",
        "logs metric=a:(b) stream=a stream=b",
        "logs metric=~a:(b)",
        "graphite host=a",
        "prometheus pod=" + "a" * LONGEST,
    ],
)
def test_given_no_source_when_read_then_it_is_none(text: str) -> None:
    assert named_source(text) is None


def test_tag_names_a_source_through_the_job_policy() -> None:
    resolved = resolve("bert", [tag_source({"trainguard:source": " prometheus  pod=bert-0 "})], asked=True)
    assert (resolved.policy.source, resolved.faults) == ("prometheus pod=bert-0", ())
    assert resolved.sources["source"] == "tag trainguard:source"


def test_tag_naming_no_source_is_a_fault_and_polls_nothing() -> None:
    resolved = resolve("bert", [tag_source({"trainguard:source": "prometheus"})], asked=True)
    assert resolved.policy.source == ""
    (fault,) = resolved.faults
    assert (fault.setting, fault.value) == ("source", "prometheus")
