"""Text of others in every output: on the line that it belongs to, seen as what it is, never acting."""

import io
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.support.hostile_text import PHRASES, hostile, links, unseen
from tests.unit.actions.test_alert import FIRE, alert_input
from trainguard.cli.commands.analyze.outcome import FIELDS, Analysis, blocks_of
from trainguard.cli.output.rendering import show
from trainguard.core.finding import Finding, Patience
from trainguard.core.records import AlertKind, JobRecord, OutboxEntry, Status, StreamKey, StreamRecord
from trainguard.core.text import LONGEST_SENTENCE, terminal_json
from trainguard.engine.installed import FAMILIES
from trainguard.engine.jobs.job_registry import start_notice
from trainguard.engine.outbox import RowContext, rule_row, with_entries
from trainguard.engine.verdicts.episodes import FiringHistory
from trainguard.engine.verdicts.verdict import RuleOutcome
from trainguard.pricing.cost import PaidTime
from trainguard.rules.rule_result import RuleResult
from trainguard.stack.actions.alert import ReadyAlert, compose_alert
from trainguard.stack.actions.request import AlertRequest, FireInput, StopDecision, StopResult

KINDS = list(AlertKind)
CONSOLE = "Open it in the console: "
REPORT = "Report: "


def alert(kind: AlertKind, text: str) -> ReadyAlert:
    """Return the alert of a fire whose every foreign text is the same."""
    text = f"x{text}"
    foreign: dict[str, Any] = dict.fromkeys(("job", "node", "reason", "advice", "cost", "severity"), text)
    places = {"report_uri": f"s3://profiles/{text}/report.json", "report_page": f"s3://profiles/{text}/report.html"}
    fire = alert_input(**(FIRE | foreign | places), kind=kind, faults=[text], tuning_job=text, previous_severity=text)
    decision = StopDecision(True, "stop", text, FIRE["fired_at"])
    return compose_alert(AlertRequest(fire, decision, StopResult(False, text)), now=0.0)


@given(text=hostile, kind=st.sampled_from(KINDS))
def test_mailed_hostile_text_keeps_the_lines_of_a_harmless_one(text: str, kind: AlertKind) -> None:
    mail, usual = alert(kind, text).text, alert(kind, "harmless").text
    lines, expected = mail.split("\n"), usual.split("\n")
    assert unseen(mail.replace("\n", "")) == []
    if kind is AlertKind.NOTICE:
        return
    assert [line.partition(": ")[0] for line in expected if ": " in line] == [
        line.partition(": ")[0] for line, other in zip(lines, expected, strict=True) if ": " in other
    ]
    for line in lines:
        if line.startswith((CONSOLE, REPORT)):
            assert " " not in line.removeprefix(CONSOLE).removeprefix(REPORT)
        else:
            assert links(line) == []


@given(text=hostile, kind=st.sampled_from(KINDS))
def test_hostile_chat_text_cannot_link_mention_or_begin_a_line(text: str, kind: AlertKind) -> None:
    composed, usual = alert(kind, text), alert(kind, "harmless")
    said, expected = composed.chat["content"], usual.chat["content"]
    own = f"Open the report: {FIRE['report_link']}".replace("&", "&amp;")
    shown = [said["title"], *said["description"].split("\n"), *said["keywords"]]
    shown += [step for step in said["nextSteps"] if step != own]
    shown += [*composed.chat["metadata"]["additionalContext"].values(), composed.chat["metadata"]["summary"]]
    assert all(unseen(each) == links(each) == [] for each in shown)
    assert not any("<" in each or ">" in each for each in shown)
    assert not any(f"@{each}" in " ".join(shown) for each in ("here", "channel", "everyone", "U123"))
    if kind is not AlertKind.NOTICE:
        assert said["description"].count("\n") == expected["description"].count("\n")


@given(text=hostile, kind=st.sampled_from(KINDS))
def test_hostile_text_on_the_bus_keeps_the_document_sound(text: str, kind: AlertKind) -> None:
    published = alert(kind, text)

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [each for inner in value.values() for each in texts(inner)]
        if isinstance(value, list):
            return [each for inner in value for each in texts(inner)]
        return [value] if isinstance(value, str) else []

    document = dict(published.document)
    assert msgspec.json.decode(msgspec.json.encode(document)) == document
    for each in [*texts(document), *published.attributes.values(), published.action, published.waiting]:
        assert unseen(each) == []
        assert len(each) <= 4_000
    assert len(published.action) <= LONGEST_SENTENCE


def test_hostile_faults_of_a_notice_are_one_line_each() -> None:
    notices = _Notices()
    job = JobRecord("job", "unknown:job", "profiles", "", setting_faults=PHRASES[:7])
    start_notice(job, notices, 0.0)
    (payload,) = notices.payloads
    assert [unseen(each) for each in payload["faults"]] == [[]] * 7
    lines = payload["reason"].split("\n")
    assert len(lines) == 6
    assert lines[-1] == "and 2 more"
    told = compose_alert(AlertRequest(FireInput.read(payload)), now=0.0)
    assert [links(line) for line in told.text.split("\n") if not line.startswith(REPORT)] == [[]] * 13


class _Notices:
    def __init__(self) -> None:
        self.payloads: list[Any] = []

    def start(self, name: str, payload: Any) -> bool:
        """Keep the payload."""
        del name
        self.payloads.append(payload)
        return True


@given(text=hostile)
def test_hostile_rule_text_is_one_cut_line_in_row_and_outbox(text: str) -> None:
    job = JobRecord("job", "unknown:job", "profiles", "")
    result = RuleResult(Status.FIRED, text, worst=text, advice=text, progress=Patience(seen=2, needed=3, counts=text))
    context = RowContext(
        "job", "algo-1", FAMILIES.plan(job), 0.0, {"bad_lines": 1}, text, None, PaidTime(None, None, 0.0, 1)
    )
    row = rule_row(context, RuleOutcome("LowGPUUtilization", result, FiringHistory(is_open=True, times_fired=1)))
    entry = OutboxEntry("f", 0, 0.0, Finding("LowGPUUtilization", "algo-1", text, advice=text))
    (stored,) = with_entries(StreamRecord(StreamKey("job", "algo-1", "system")), [entry]).outbox.values()
    for each in (
        row.finding.reason,
        row.worst,
        row.finding.advice,
        row.patience,
        stored.finding.reason,
        stored.finding.advice,
    ):
        assert each is not None
        assert unseen(each) == []
        assert len(each) <= LONGEST_SENTENCE


@given(text=hostile, terminal=st.booleans(), width=st.integers(30, 160))
def test_hostile_text_of_an_analysis_cannot_control_the_terminal(text: str, terminal: bool, width: int) -> None:
    line = dict.fromkeys(FIELDS) | dict.fromkeys(("reason", "advice", "cost"), text)
    line |= {"rule": "StepOutlier", "status": "FIRED", "times_fired": 1}
    outcome = Analysis(place="job", rules=[line], files={}, unread={}, healthy=False, cost=text)
    console = Console(file=io.StringIO(), force_terminal=terminal, color_system=None, width=width, highlight=False)
    with console.capture() as printed:
        show(console, blocks_of(outcome))
    assert unseen(printed.get().replace("\n", "").replace("\t", "")) == []
    if not terminal:
        assert printed.get().count("\n") == 2


@pytest.mark.parametrize("text", [each for each in PHRASES if "\ud800" not in each])
def test_hostile_text_in_json_round_trips_safely(text: str) -> None:
    document = terminal_json(msgspec.json.encode({"reason": text}).decode())
    assert json.loads(document) == {"reason": text}
    assert unseen(document.replace("\u200b", "")) == []
