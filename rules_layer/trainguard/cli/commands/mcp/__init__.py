"""``trainguard mcp``."""

from pathlib import Path
from typing import Annotated

import typer

from trainguard.cli.command import Result, command
from trainguard.cli.options import InstanceType, Params, Prices, Where, option


@command(loads_rules=("rules_package",))
def mcp(
    *,
    root: Annotated[Path, option("--root", "DIR", "Agents read runs below it alone.")] = Path(),
    source: Annotated[
        list[str] | None,
        option(
            "--source", "PLACE", "A remote place that agents may read too: s3://bucket/prefix, mlflow+https://host."
        ),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdio.")] = False,
    host: Annotated[str, option("--host", "ADDRESS", "Listen here; beyond this machine with a token.")] = "127.0.0.1",
    port: Annotated[int, option("--port", "PORT", "Listen here.", min=1, max=65_535)] = 8765,
    token: Annotated[
        str, option("--token", "TOKEN", "Callers must bear it; better in the variable.", envvar="TRAINGUARD_MCP_TOKEN")
    ] = "",
    allowed_host: Annotated[
        list[str] | None, option("--allowed-host", "NAME", "A name by which clients may call the server.")
    ] = None,
    allow_brake: Annotated[
        bool, typer.Option("--allow-brake", help="Agents may put brakes on jobs whose tag allows it.")
    ] = False,
    allow_stop: Annotated[
        bool, typer.Option("--allow-stop", help="Agents may ask the stack to stop jobs whose tags allow it.")
    ] = False,
    skill: Annotated[bool, typer.Option("--skill", help="Print the skill file for agents and exit.")] = False,
    params: Params = None,
    instance_type: InstanceType = None,
    prices: Prices = None,
    where: Where,
    as_json: bool,
) -> "Result | int":
    """Serve verdicts, explanations and ledgers to agents by the Model Context Protocol. It only reads.

    Needs the extra mcp: pip install 'trainguard[mcp]'.

    Examples: `trainguard mcp --root ./runs`, `trainguard mcp --http --root ./runs`,
    `trainguard mcp --source s3://my-profiles/jobs --profile reader`, `trainguard mcp --skill`
    """
    if skill:
        text = (Path(__file__).parent / "SKILL.md").read_text(encoding="utf-8")
        if as_json:
            from trainguard.cli.output.result import CommandResult

            return CommandResult(document={"skill": text}, blocks=[])
        typer.echo(text, nl=False)
        return 0
    from trainguard.core.errors import MissingLibraryError

    try:
        from trainguard.cli.commands.mcp.server import http_app, make_server, serve_http, serve_stdio
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in {"anyio", "mcp", "pydantic", "starlette", "uvicorn"}:
            raise
        raise MissingLibraryError("trainguard mcp", "'trainguard[mcp]'") from missing
    from functools import partial

    from trainguard.cli.commands.mcp.session import McpSession, Places
    from trainguard.cli.commands.mcp.tools import READING
    from trainguard.cli.services.readings import read
    from trainguard.core.errors import RequestError
    from trainguard.local.settings import given_settings

    if not root.is_dir():
        raise RequestError(f"--root {str(root)!r} is no folder", "Name the folder that runs lie in.")
    settings = given_settings(params, prices, instance_type)
    places = Places(root.resolve(), tuple(source or ()))
    session = McpSession(places, partial(read, where=where, settings=settings, timelines=True))
    tools = list(READING)
    if allow_brake or allow_stop:
        from trainguard.cli.commands.mcp.acting import acting_tools

        tools += acting_tools(where, brakes=allow_brake, stops=allow_stop)
    server = make_server(session, tools)
    try:
        if http:
            app = http_app(server, host, token, allowed_host or (), acts=allow_brake or allow_stop)
            serve_http(app, host, port)
        else:
            serve_stdio(server)
    finally:
        session.close()
    return 0
