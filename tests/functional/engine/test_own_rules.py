"""Rules of a deployment's own in the engine: whatever they do, TrainGuard's rules say what they would say anyway."""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from tests.support.delivery import Network, final_state
from tests.support.own_rules import OwnJob, OwnJoin, OwnParameters, OwnRule, OwnState, OwnSteps, deploy, fine
from tests.support.small_job import JOB, SETTINGS, describe, uploads
from trainguard.core.records import JobRecord, JobStatus, RuleRow, Status, StreamKey
from trainguard.engine.installed import FAMILIES
from trainguard.engine.profiler.system_stream import SystemState
from trainguard.engine.streams.session import ITEM_CAP_BYTES
from trainguard.rules.protocol import STATE_CAP_BYTES
from trainguard.rules.rule_result import Measure
from trainguard.state.codec import decode_state, encode_state

UPLOADS = uploads()
NODE_1 = StreamKey(JOB, "algo-1", "system")


def deliver(network: Network, chosen: Any = UPLOADS) -> Network:
    for upload in chosen:
        if upload.key.endswith("training_job_end.ts"):
            network.world.training_jobs.set(describe(status=JobStatus.COMPLETED))
        network.put(upload)
        network.announce(upload, max(upload.at, network.now))
        network.run_until(upload.at, batch_s=0.0)
    network.run_scheduler()
    network.run_until(chosen[-1].at + 1_000.0, batch_s=0.0)
    return network


def row(network: Network, target: str) -> RuleRow:
    return next(each for each in network.world.rows.of_job(JOB) if each.target == target)


def others(network: Network) -> dict[str, object]:
    """Return the rows of TrainGuard's own rules but the report, and the fires."""
    state = final_state(network.world)
    mine = ("Own", "ProfilerReport")
    kept = {target: told for target, told in state.items() if not target.startswith(mine) and "#system" not in target}
    fires = [fire for fire in cast("list[Any]", kept.pop("executions")) if not fire[0].startswith("Own")]
    return {target: told for target, told in kept.items() if "#framework" not in target} | {"fires": fires}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, object]:
    """Return what TrainGuard's rules say about the job when they are alone."""
    return others(deliver(Network()))


def grow(state: OwnState, _: Any) -> None:
    state.notes.append("x" * 1_000)


def write(_: Any, minute: Any) -> None:
    minute.view.kept_gpu_utilization[:] = 0.0


def write_snapshots(_: Any, minute: Any) -> None:
    minute.snapshots.gpu_utilization.sort(axis=0)


def unstorable(state: OwnState, _: Any) -> None:
    cast("Any", state).notes = [object()]


def fail(*_: Any) -> None:
    raise KeyError("gpu9")


def leave(*_: Any) -> None:
    sys.exit(3)


def saying(**fields: Any) -> Callable[[Any, Any], Any]:
    return lambda state, view: replace(fine(state, view), **fields)


# Rules, and what the row of each says.
MISBEHAVING: tuple[tuple[OwnRule, str], ...] = (
    (OwnRule(grow), "state is"),
    (OwnRule(write), "read-only"),
    (OwnRule(write_snapshots), "read-only"),
    (OwnRule(unstorable), "what msgspec can encode"),
    (OwnRule(fail), "gpu9"),
    (OwnRule(leave), "SystemExit"),
    (OwnRule(judging=fail), "gpu9"),
    (OwnRule(judging=lambda *_: None), "expected a RuleResult"),
    (OwnRule(judging=saying(measured=float("nan"))), "measured is nan"),
    (OwnRule(judging=saying(wasted_share=1.5)), "wasted_share is 1.5"),
    (OwnRule(judging=saying(reason=7)), "reason is 7"),
    (OwnRule(judging=saying(data_points=-1)), "data_points is -1"),
    (OwnRule(judging=saying(status="FINE")), "status is 'FINE'"),
    (OwnRule(judging=saying(idle_node="sometimes")), "idle_node is 'sometimes'"),
    (OwnRule(judging=saying(pooled=(1, 2, 3))), "pooled is (1, 2, 3)"),
    (OwnRule(judging=saying(onset="noon")), "onset is 'noon'"),
    (OwnRule(judging=saying(until=float("inf"))), "until is inf"),
    (OwnRule(judging=saying(gpus=["gpu0"])), "gpus is ['gpu0']"),
    (OwnRule(judging=saying(time_left_s=-1.0)), "time_left_s is -1.0"),
    (OwnRule(judging=saying(measured=3.0, measure="rpm")), "a Measure or None"),
    (OwnRule(judging=saying(measured=3.0, measure=Measure("speed", cast("str", 7)))), "measure is 7"),
    (OwnRule(judging=saying(details={"a": object()})), "what JSON can hold"),
    (OwnRule(judging=saying(details={"a": "b" * 9_000})), "at most 8,192"),
    (OwnRule(clear=fail), "gpu9"),
    (OwnRule(clear=lambda: -1.0), "clear_after_s is -1.0"),
    (OwnRule(window=fail), "gpu9"),
    (OwnRule(window=leave), "SystemExit"),
    (OwnRule(window=lambda: 5_000), "window_points is 5000"),
    (OwnRule(window=lambda: "many"), "window_points is 'many'"),
)


def test_misbehaving_rules_are_in_error_and_others_unaffected(
    monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, object]
) -> None:
    names = {f"Own{place}": told for place, (_, told) in enumerate(MISBEHAVING)}
    deploy(monkeypatch, *(rule.named(name) for name, (rule, _) in zip(names, MISBEHAVING, strict=True)))
    network = deliver(Network())
    state = decode_state("item", 1, network.node(NODE_1).state, SystemState).stored_rules
    for name, told in names.items():
        for target in (name, f"{name}#algo-1", f"{name}#algo-2"):
            assert row(network, target).status is Status.ERROR, (target, told)
            assert told in row(network, target).finding.reason
            assert len(row(network, target).finding.reason) < 1_000
        assert state[name].data == b"", told
    assert others(network) == undisturbed
    assert network.job().active is False
    assert network.world.journal.totals["rule_errors"] >= len(names)
    assert network.world.journal.totals["evaluation_failures"] == 0


def test_custom_rules_of_every_kind_judge_with_their_parameters(
    monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, object]
) -> None:
    deploy(monkeypatch, OwnRule(), OwnSteps(), OwnJoin(), OwnJob())
    network = Network()
    tags = SETTINGS | {"trainguard:OwnJoin_threshold": "3", "trainguard:ownrule_threshold": "101"}
    network.world.training_jobs.set(describe(tags))
    deliver(network, UPLOADS[:-1])
    assert row(network, "OwnSteps#algo-1").status is Status.OK
    assert row(network, "OwnSteps#algo-1").data_points > 0
    assert (row(network, "OwnJoin").status, row(network, "OwnJoin").finding.threshold) == (Status.FIRED, 3.0)
    assert "OwnJoin" in [each["rule"] for each in network.world.executions.started.values()]
    assert row(network, "OwnJob").status is Status.ERROR
    assert "2 nodes are not enough" in row(network, "OwnJob").finding.reason
    assert row(network, "OwnRule").status is Status.ERROR
    assert "a number from 0 to 100" in row(network, "OwnRule").finding.reason
    for upload in UPLOADS[-1:]:
        deliver(network, [upload])
    assert others(network)["fires"] == undisturbed["fires"]


def test_items_of_rules_at_their_limit_stay_under_the_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise = np.random.default_rng(7)

    def fill(state: OwnState, _: Any) -> None:
        state.notes = ["".join(noise.choice(list("abcdefghijklmnop"), STATE_CAP_BYTES - 40))]

    rules = [type(f"Own{number}", (OwnRule,), {"name": f"Own{number}"})(fill) for number in range(8)]
    deploy(monkeypatch, *rules)
    network = deliver(Network(), UPLOADS[:-1])
    assert {row(network, f"Own{number}").status for number in range(8)} == {Status.OK}
    record = network.node(NODE_1)
    assert len(record.state) <= ITEM_CAP_BYTES
    assert not [name for name in record.counters if name.startswith("degraded")]


LONG = Measure("q" * 500, "u" * 500)


def test_long_sentences_are_truncated_in_the_row(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"reason": "r" * 5_000, "worst": "w" * 500}
    deploy(monkeypatch, OwnRule(judging=saying(**texts, measured=1.0, measure=LONG)))
    told = row(deliver(Network(), UPLOADS[:20]), "OwnRule#algo-1")
    assert told.finding.reason.startswith("r" * 1_000)
    assert len(told.finding.reason) < 1_100
    assert told.worst == "w" * 120
    assert (told.quantity, told.unit) == ("q" * 120, "u" * 120)


def changed(network: Network, edit: Callable[[SystemState], None]) -> None:
    """Write a node's state as another version would have."""
    stored = network.node(NODE_1)
    state = decode_state("item", stored.codec, stored.state, SystemState)
    edit(state)
    network.world.nodes.save(replace(stored, state=encode_state(state)))


def test_state_of_another_shape_resets_the_rule_and_says_so(
    monkeypatch: pytest.MonkeyPatch, undisturbed: dict[str, object]
) -> None:
    deploy(monkeypatch, OwnRule())
    network = deliver(Network(), UPLOADS[:40])
    before = row(network, "OwnRule#algo-1").data_points

    def edit(state: SystemState) -> None:
        state.stored_rules["OwnRule"].data = b"\x81\xa7minutes\xa3ten"

    changed(network, edit)
    deliver(network, UPLOADS[40:])
    after = row(network, "OwnRule#algo-1")
    assert after.status is Status.OK
    assert 0 < after.data_points < before + len(UPLOADS[40:])
    assert "was of another version" in after.finding.reason
    assert "minutes" in after.finding.reason
    assert "another version" not in row(network, "OwnRule#algo-2").finding.reason
    assert others(network) == undisturbed


def test_row_of_an_undeployed_rule_says_so_and_expires(
    undisturbed: dict[str, object],
) -> None:
    network = Network()
    with pytest.MonkeyPatch.context() as deployed:
        deploy(deployed, OwnRule(judging=saying(status=Status.FIRED)), OwnSteps(), OwnJob())
        deliver(network, UPLOADS[:40])
        assert row(network, "OwnRule").times_fired == 1
    deliver(network, UPLOADS[40:])
    for target in ("OwnRule", "OwnRule#algo-1", "OwnSteps", "OwnSteps#algo-2", "OwnJob"):
        gone = row(network, target)
        assert gone.status is Status.DISABLED, target
        assert "no rule of this name any more" in gone.finding.reason
        assert gone.expires_at is not None
    assert row(network, "OwnRule").debugger_status == "IssuesFound"
    assert others(network) == undisturbed
    kept = decode_state("item", 1, network.node(NODE_1).state, SystemState).stored_rules["OwnRule"]
    assert kept.data != b""


class Refusing(OwnParameters, frozen=True, kw_only=True):
    def __post_init__(self) -> None:
        if self.threshold > 90.0:
            raise ValueError("over 90 is hopeless")


def test_refused_custom_parameters_fault_that_rule_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rule = OwnRule()
    rule.parameters_type = Refusing
    deploy(monkeypatch, rule)
    settings = {"OwnRule_threshold": "95", "LowGPUUtilization_patience": "20"}
    plan = FAMILIES.plan(JobRecord(job=JOB, arn="unknown:", bucket="b", prefix="", rule_settings=settings))
    assert list(plan.faults) == ["OwnRule"]
    assert "over 90 is hopeless" in str(plan.faults["OwnRule"])
