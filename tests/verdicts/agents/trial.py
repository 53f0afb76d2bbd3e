"""The trial of the tools: a reader that takes the first change of the verdict, what calls it needs, what tokens."""

import json
import multiprocessing
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from tests.verdicts.agents.jobs import labelled_jobs
from trainguard.cli.commands.mcp.server import make_server
from trainguard.cli.commands.mcp.session import McpSession, Places
from trainguard.cli.commands.mcp.tools import READING
from trainguard.cli.options import Where
from trainguard.cli.services.readings import read
from trainguard.local.settings import given_settings

# As a rule of thumb for JSON and English.
CHARACTERS_A_TOKEN = 4

MOST_CALLS = 5


@dataclass(frozen=True)
class Outcome:
    """What the reader did with a job; ``tokens`` are of the tools' definitions, the calls and their answers."""

    name: str
    wanted: tuple[str, ...]
    change: str
    calls: int
    tokens: int
    longest_verdict: int

    @property
    def is_right(self) -> bool:
        return self.change in self.wanted


def outcomes() -> Sequence[Outcome]:
    """Try all jobs, over all cores."""
    count = len(labelled_jobs())
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.process_cpu_count() if hasattr(os, "process_cpu_count") else None, context) as pool:
        return list(pool.map(outcome, range(count)))


def outcome(number: int) -> Outcome:
    """Try the job of a number."""
    job = labelled_jobs()[number]
    with tempfile.TemporaryDirectory(prefix="agents-") as folder:
        root = Path(folder).resolve()
        place = job.write(root)
        session = session_of(root)
        try:
            found = anyio.run(_asked, session, place.relative_to(root).as_posix())
        finally:
            session.close()
    change, calls, characters, longest = found
    return Outcome(job.name, tuple(sorted(job.changes)), change, calls, characters // CHARACTERS_A_TOKEN, longest)


def session_of(root: Path) -> McpSession:
    settings = given_settings(None, None, None)
    patient_s = 600.0
    return McpSession(Places(root), lambda place: read(place, Where(), settings, timelines=True), patience_s=patient_s)


async def _asked(session: McpSession, source: str) -> tuple[str, int, int, int]:
    """Ask for the verdict, and once for what it names next; return the change, calls, characters and its length."""
    async with Client(make_server(session, READING)) as client:
        listed = (await client.list_tools()).tools
        characters = sum(len(f"{each.name}{each.description}{json.dumps(each.input_schema)}") for each in listed)
        text = await _text(client, "verdict", {"source": source})
        characters, longest, verdict = characters + len(text), len(text), json.loads(text)
        calls = 1
        for name in verdict.get("next", [])[:1]:
            characters += len(await _text(client, name, {"source": source}))
            calls += 1
        return verdict.get("change", "no verdict"), calls, characters + 100 * calls, longest


async def _text(client: Client, name: str, arguments: dict[str, Any]) -> str:
    answer = await client.call_tool(name, arguments)
    return "".join(getattr(each, "text", "") for each in answer.content)


def table(found: Sequence[Outcome]) -> str:
    """Return the figures as text, and each job whose change is not the label's."""
    tokens = [each.tokens for each in found]
    right = sum(each.is_right for each in found)
    lines = [
        f"jobs: {len(found)}; the first change is the label's: {right} ({right / len(found):.1%})",
        f"calls: at most {max(each.calls for each in found)}",
        f"tokens with definitions of tools: at most {max(tokens):,}, mean {sum(tokens) / len(tokens):,.0f}",
        f"longest verdict: {max(each.longest_verdict for each in found):,} bytes",
    ]
    wrong = (f"  {each.name}: {each.change}, wanted {' or '.join(each.wanted)}" for each in found if not each.is_right)
    return "\n".join([*lines, *wrong]) + "\n"
