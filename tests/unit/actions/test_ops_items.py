"""OpsItems: one for each broken GPU, recognised by node and GPU, and by the job where nodes are the job's own."""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from botocore.exceptions import ClientError

from tests.unit.actions.test_send_alert import CALL, NOW, about
from trainguard.aws.ssm import SsmOpsItems
from trainguard.core.errors import PortUnavailableError
from trainguard.stack.actions.alert import compose_alert
from trainguard.stack.actions.ops_items import BROKEN, FindingEvent, HealthFinding, OpsItem, items_of, open_all
from trainguard.stack.actions.request import AlertRequest

NODE = "ip-10-0-0-7.ec2.internal"


@dataclass
class MemoryOpsItems:
    """Stands for OpsCenter; ``fails`` at the item of that number."""

    items: dict[str, OpsItem] = field(default_factory=dict)
    fails: int = -1

    def open(self, item: OpsItem) -> bool:
        if len(self.items) == self.fails:
            raise PortUnavailableError("ssm", "CreateOpsItem", "it is down")
        return self.items.setdefault(item.identity, item) is item


def finding(node: str = NODE, **changes: Any) -> HealthFinding:
    """Return a finding as the bus has it, of an alert that was composed."""
    episode = {"start": "2026-07-14T09:43:00.000Z", "end": None, "node": node, "nodes": [node], "gpus": ["gpu3"]}
    xid = {"name": "xid", "value": 79, "node": node, "device": "gpu3"}
    other = {"name": "other_gpu", "value": "gpu5", "node": node}
    given = {
        "rule": "GPUHealth",
        "node": node,
        "finding_kind": "xid",
        "facts": [xid, other],
        "episodes": [{**episode, "measured": None, "wasted_s": None, "cost": None, "currency": None}],
        **changes,
    }
    alert = compose_alert(AlertRequest.read(CALL | {"fire": about(**given)}), now=NOW)
    return msgspec.convert({"detail": json.loads(msgspec.json.encode(alert.document))}, FindingEvent).detail


def test_each_gpu_of_a_finding_is_opened_once() -> None:
    ops_items = MemoryOpsItems()
    first = open_all(finding(), ops_items)
    assert (len(first["opened"]), first["known"]) == (2, 0)
    assert ops_items.items.keys() == {json.dumps([NODE, gpu]) for gpu in ("gpu3", "gpu5")}
    assert open_all(finding(job="another-job"), ops_items) == {"opened": [], "known": 2}


def test_nodes_that_each_job_has_again_are_distinguished_by_it() -> None:
    ops_items = MemoryOpsItems()
    for job in ("one", "two"):
        assert len(open_all(finding("algo-1", job=job), ops_items)["opened"]) == 2
    assert json.dumps(["two/algo-1", "gpu3"]) in ops_items.items


def test_gpus_of_several_nodes_are_named_by_the_episode() -> None:
    episodes = msgspec.to_builtins(finding().episodes)
    several = {**episodes[0], "node": None, "nodes": ["a", "b"], "gpus": ["a/gpu0", "b/gpu1"]}
    found = finding(node="*", facts=[], episodes=[*episodes, several])
    assert [item.identity for item in items_of(found)] == ['["a", "gpu0"]', '["b", "gpu1"]']
    assert not list(items_of(finding(node="*", facts=[], episodes=[{**episodes[0], "node": None, "nodes": []}])))


@pytest.mark.parametrize(("severity", "expected"), [("critical", "1"), ("high", "2"), ("low", "4"), (None, "3")])
def test_item_says_what_broke_where_and_how_bad(severity: str | None, expected: str) -> None:
    item = next(items_of(finding(severity=severity, reason="XID 79\n<b>\x1b[31m")))
    assert (item.severity, item.title) == (expected, f"gpu3 of {NODE} is broken: xid")
    assert item.data["job"] == CALL["fire"]["job"]
    assert item.data["kind"] in BROKEN
    assert item.description.isprintable() is False
    assert all(line.isprintable() for line in item.description.splitlines())


def test_repeat_after_a_failure_opens_the_rest() -> None:
    ops_items = MemoryOpsItems(fails=1)
    with pytest.raises(PortUnavailableError):
        open_all(finding(), ops_items)
    ops_items.fails = -1
    assert open_all(finding(), ops_items)["known"] == 1


@dataclass
class Ssm:
    """Refuses with a code, if any, and notes what it was asked."""

    code: str | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)

    def create_ops_item(self, **request: Any) -> dict[str, Any]:
        self.asked.append(request)
        if self.code:
            raise ClientError({"Error": {"Code": self.code, "Message": "no"}}, "CreateOpsItem")
        return {"OpsItemId": "oi-1"}


def test_opscenter_gets_the_identity_and_refuses_an_open_one() -> None:
    item = next(items_of(finding()))
    ssm = Ssm()
    assert SsmOpsItems(client=lambda: ssm).open(item)  # type: ignore[arg-type,return-value]
    (asked,) = ssm.asked
    dedup = json.loads(asked["OperationalData"]["/aws/dedup"]["Value"])
    assert dedup == {"dedupString": item.identity}
    assert all(not name.startswith(("aws", "amazon")) for name in asked["OperationalData"])
    known = Ssm(code="OpsItemAlreadyExistsException")
    assert not SsmOpsItems(client=lambda: known).open(item)  # type: ignore[arg-type,return-value]
    with pytest.raises(PortUnavailableError, match="OpsItemLimitExceeded"):
        SsmOpsItems(client=lambda: Ssm(code="OpsItemLimitExceededException")).open(item)  # type: ignore[arg-type,return-value]
