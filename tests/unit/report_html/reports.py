"""Reports made by hand: as large, as small and as strange as a test needs them."""

from collections.abc import Mapping
from typing import Any

from trainguard.render.rule_entry import RuleEntry
from trainguard.report.document import FindingEntry, Headline, JobSummary, NotCollected, Report, Span, Spending
from trainguard.report.evaluated_job import NodeCoverage

AT = "2026-11-21T14:00:00.000Z"
MARKUP = "</script></style><!--<script>window.hacked=1</script><img src=x onerror=alert(1)>"
# What a name might hold of somebody who means harm.
HOSTILE = MARKUP + "\"'&\u202e\x00\x1b[31m{{7*7}}"


def entry(rule: str, details: Mapping[str, Any] | None = None, **given: Any) -> RuleEntry:
    """Return a rule that has found nothing, changed as given."""
    shown: dict[str, Any] = {
        "status": "OK",
        "severity": None,
        "reason": "all is as it should be.",
        "recommendation": None,
        "measured": 91.0,
        "threshold": 70.0,
        "unit": "%",
        "worst": None,
        "times_fired": 0,
        "violations": 0,
        "data_points": 2_880,
        "fired_at": None,
        "parameters": {"threshold_p95": 70.0, "threshold_p5": 10.0, "threshold": 50.0, "window": 500},
        "changed": [],
    }
    return RuleEntry(rule=rule, details=dict(details or {}), **{**shown, **given})


def fired(rule: str, details: Mapping[str, Any] | None = None, **given: Any) -> RuleEntry:
    """Return a rule that fires."""
    about = {"status": "FIRED", "severity": "high", "times_fired": 1, "fired_at": AT, "measured": 35.0}
    return entry(rule, details, **{**about, "recommendation": "Raise the batch size.", **given})


def finding(rule: str, **given: Any) -> FindingEntry:
    """Return a rule's finding, changed as given."""
    about: dict[str, Any] = {
        "severity": "high",
        "score": 42.0,
        "ongoing": True,
        "affected_share": 0.94,
        "wasted_share": 0.42,
        "worst": "algo-1/gpu0",
        "nodes_affected": 1,
        "nodes": 2,
        "reason": "gpu0 is low.",
        "advice": "Raise the batch size.",
        "lost": 8.8,
        "cost": "about USD 8.80 of the USD 11.75 spent",
        "explained_by": None,
    }
    return FindingEntry(rule=rule, **{**about, **given})


def report(*rules: RuleEntry, text: str = "", **given: Any) -> Report:
    """Return a report of rules; ``text`` is put into every text of it."""
    shown: dict[str, Any] = {
        "generated_at": AT,
        "scope": "state",
        "final": True,
        "healthy": False,
        "verdict": Headline(
            health=f"The job is not healthy.{text}",
            change=f"Raise the batch size.{text}",
            cost=f"It cost 75 %.{text}",
            level="unhealthy",
            rule="LowGPUUtilization",
            wasted_share=0.75,
            lost=8.8,
        ),
        "summary": f"LowGPUUtilization fires.{text}",
        "fired": [],
        "findings": [],
        "cost": Spending(spent=11.75, currency="USD", note=f"2 x 0.40 h at USD 14.688.{text}"),
        "job": job(text),
        "coverage": [coverage(f"algo-1{text}", text)],
        "not_collected": [NotCollected(what=f"Operators{text}", unknown=f"What runs.{text}", how=f"Profile.{text}")],
    }
    return Report(rules=list(rules), **{**shown, **given})


def job(text: str = "") -> JobSummary:
    """Return the summary of a job."""
    span = Span(start=AT, end=AT, duration_s=600.0, share=0.25)
    return JobSummary(
        name=f"bert{text}",
        arn=f"arn:aws:sagemaker:eu-west-1:123456789012:training-job/bert{text}",
        status=f"Completed{text}",
        instance_type=f"ml.p4d.24xlarge{text}",
        instance_count=2,
        gpus=16,
        started_at=AT,
        ended_at=AT,
        duration_s=2_400.0,
        evaluated_through=AT,
        initialization=span,
        training_loop=span,
        finalization=span,
        steps=3_217,
        data_covered=f"All of it.{text}",
        data_missing=[f"Nothing.{text}"],
    )


def coverage(node: str, text: str = "", **counters: int) -> NodeCoverage:
    """Return what was collected of a node."""
    return NodeCoverage(
        node=node,
        stream="system",
        first_at=AT,
        evaluated_through=AT,
        closed=True,
        share=0.987,
        counters=counters or {"lines": 77_760, "bad_lines": 3, "gaps": 2},
        last_fault=f"object x: 3 bad_lines{text}",
    )


def box(level: float, **more: Any) -> dict[str, Any]:
    """Return quantiles about a level."""
    levels = {"lower": -16.0, "p25": -4.0, "p50": 0.0, "p75": 4.0, "p95": 10.0, "upper": 16.0}
    return {**{name: level + offset for name, offset in levels.items()}, **more}


def low_gpu(nodes: int, gpus: int, *, name: str = "") -> dict[str, Any]:
    """Return details of LowGPUUtilization: the higher a node's number, the busier it is."""
    return {
        f"algo-{node}{name}": {
            "gpus": {
                f"gpu{gpu}{name}": box(
                    20.0 + node % 60, gpu_max=60.0 + node % 40, gpu_95=30.0 + node % 60, gpu_5=14.0, kind="under"
                )
                for gpu in range(gpus)
            },
            "never_active": [f"gpu9{name}"],
            "last_timestamp": 1,
        }
        for node in range(1, nodes + 1)
    }
