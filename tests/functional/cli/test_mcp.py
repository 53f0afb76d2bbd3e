"""`trainguard mcp` asked by the package's own client: in this process, over stdio and over HTTP."""

import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.verdicts.agents.injected import MARKS, TEXTS, injected, outside
from tests.verdicts.agents.jobs import losses
from tests.verdicts.agents.trial import session_of
from trainguard.cli.commands.mcp.acting import acting_tools
from trainguard.cli.commands.mcp.server import PATH, http_app, make_server
from trainguard.cli.commands.mcp.session import McpSession
from trainguard.cli.commands.mcp.tools import READING
from trainguard.cli.options import Where
from trainguard.cli.services.readings import SourceReading
from trainguard.core.errors import RequestError
from trainguard.report.agents.verdict import MOST_BYTES

TOOLS = ["verdict", "explain", "ledger", "compare", "series", "kernels", "what_if", "rules"]
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpSession]:
    root = tmp_path_factory.mktemp("runs")
    for name in ("nan", "healthy"):
        (root / name).mkdir()
        (root / name / "log.csv").write_text(losses(name))
    made = session_of(root.resolve())
    yield made
    made.close()


async def answer(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    called = await client.call_tool(tool, arguments)
    (content,) = called.content
    found: dict[str, Any] = json.loads(content.text)  # type: ignore[union-attr]
    return {**found, "is_error": called.is_error}


def test_tools_answer_with_codes_and_mark_what_is_foreign(session: McpSession) -> None:
    async def ask() -> None:
        async with Client(make_server(session, READING)) as client:
            listed = (await client.list_tools()).tools
            assert [each.name for each in listed] == TOOLS
            assert all(each.annotations is not None and each.annotations.read_only_hint for each in listed)
            called = await client.call_tool("verdict", {"source": "nan"})
            assert len(json.dumps(called.structured_content)) <= 1.1 * MOST_BYTES
            verdict = await answer(client, "verdict", source="nan")
            assert (verdict["change"], verdict["job"]) == ("go_back", {"data": "nan"})
            explained = await answer(client, "explain", source="nan")
            assert explained["findings"][0]["change"] == "go_back"
            compared = await answer(client, "compare", source="nan", other="healthy")
            assert compared["found_here"]
            lines = (await answer(client, "series", source="nan", quantity="loss", points=5))["lines"]
            assert {len(each["mean"]) for each in lines} == {5}
            assert (await answer(client, "rules", rule="batchsize"))["rules"][0]["changes"] == ["raise_batch_size"]
            assert (await answer(client, "what_if", source="nan"))["changes"][0]["change"] == "go_back"
            for tool, given in (("kernels", {"source": "nan"}), ("verdict", {}), ("stop", {"job": "x"})):
                assert (await answer(client, tool, **given))["is_error"]
            outside = await answer(client, "verdict", source="../x")
            assert (outside["error"]["code"], set(outside["error"]["detail"])) == ("request", {"data"})
            resources = (await client.list_resources()).resources
            page, report = (each for each in resources if each.name.endswith(resources[0].name.rpartition("-")[2]))
            page, report = sorted((page, report), key=lambda each: each.name)
            assert page.annotations is not None
            assert page.annotations.audience == ["user"]
            text = (await client.read_resource(report.uri)).contents[0].text  # type: ignore[union-attr]
            assert set(json.loads(text)) == {"verdict", "explained", "ledger"}

    anyio.run(ask)


@pytest.mark.parametrize("place", ["run name", "scalar name", "stack lines"])
def test_an_injected_instruction_stays_in_its_field(place: str, tmp_path: Path) -> None:
    root, source = injected(tmp_path / "job", place, TEXTS[0])
    of_job = session_of(root.resolve())
    found = [json.loads(msgspec.json.encode(each.call(of_job, {"source": source}))) for each in READING[:2]]
    of_job.close()
    assert found[0]["change"] == ("find_hang" if place == "stack lines" else "go_back")
    assert MARKS[0] in json.dumps(found)
    assert not any(MARKS[0] in said for each in found for said in outside(each))


def test_a_reading_that_takes_long_is_asked_for_again(session: McpSession) -> None:
    goes_on = Event()

    def read(place: str) -> SourceReading:
        goes_on.wait(10)
        return session.reading("nan")

    waiting = McpSession(session.places, read, patience_s=0.01)
    with pytest.raises(RequestError, match="still being read"):
        waiting.reading("nan")
    goes_on.set()
    waiting._patience_s = 10.0
    assert waiting.reading("nan").verdict.change == "go_back"
    waiting.close()


@asynccontextmanager
async def over_http(session: McpSession, token: str, **headers: str) -> AsyncIterator[Client]:
    app = http_app(make_server(session, READING), "127.0.0.1", token, ())
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, headers=headers) as http:
            place = f"http://127.0.0.1:8765{PATH}"
            async with Client(streamable_http_client(place, http_client=http)) as client:
                yield client


def test_http_wants_the_token_and_a_known_host(session: McpSession) -> None:
    async def ask() -> None:
        async with over_http(session, TOKEN, Authorization=f"Bearer {TOKEN}") as client:
            assert (await answer(client, "verdict", source="nan"))["change"] == "go_back"
        app = http_app(make_server(session, READING), "127.0.0.1", TOKEN, ())
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        kinds = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        http = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
        async with app.router.lifespan_context(app), http:
            for given, status in (
                ({}, 401),
                ({"Authorization": "Bearer wrong"}, 401),
                ({**bearer, "Host": "evil.example"}, 421),
                ({**bearer, "Origin": "https://evil.example"}, 403),
            ):
                sent = await http.post(f"http://127.0.0.1:8765{PATH}", json=body, headers={**kinds, **given})
                assert sent.status_code == status

    anyio.run(ask)


@pytest.mark.parametrize(("token", "hosts"), [("", ("me.example",)), ("short", ("me.example",)), (TOKEN, ())])
def test_no_server_listens_beyond_this_machine_unguarded(
    session: McpSession, token: str, hosts: tuple[str, ...]
) -> None:
    with pytest.raises(RequestError, match="--host"):
        http_app(make_server(session, READING), "0.0.0.0", token, hosts)  # noqa: S104 -- it is refused


def test_tools_that_act_need_a_token_on_this_machine_too(session: McpSession) -> None:
    server = make_server(session, READING)
    with pytest.raises(RequestError, match="--allow-stop"):
        http_app(server, "127.0.0.1", "", (), acts=True)
    http_app(server, "127.0.0.1", TOKEN, (), acts=True)


def test_stdio_serves_the_same(session: McpSession) -> None:
    root = str(session.places.root)

    async def ask() -> None:
        command = StdioServerParameters(command=sys.executable, args=["-m", "trainguard", "mcp", "--root", root])
        command.env = {"PYTHONPATH": str(Path(__file__).parents[3] / "rules_layer")}
        async with Client(command) as client:
            assert (await answer(client, "verdict", source="nan"))["change"] == "go_back"

    anyio.run(ask)


def test_stops_and_brakes_are_tools_only_where_switched_on() -> None:
    names = [
        [each.name for each in acting_tools(Where(), brakes=brakes, stops=stops)]
        for brakes, stops in ((False, False), (True, False), (False, True), (True, True))
    ]
    assert names == [[], ["brake"], ["stop"], ["brake", "stop"]]
    assert all(each.acts for each in acting_tools(Where(), brakes=True, stops=True))
    assert not any(each.acts for each in READING)
