"""``python -m tests.scoreboard.fetch``: fetches public traces from their homes into build/scoreboard, hashes checked.

A trace that is there already is not fetched again; ``--home URL`` takes the part of each address behind its host from
a mirror.
"""

import argparse
import hashlib
import sys
import tomllib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

SOURCES = Path(__file__).with_name("sources.toml")
FOLDER = Path(__file__).parents[2] / "build" / "scoreboard"
_PART = 1 << 20
_WAIT_S = 60


class FetchError(RuntimeError):
    """A trace that is not the published one, or is not available; the message names it."""


class _SameHost(HTTPRedirectHandler):
    """Follows redirects of a host to itself alone: what another one serves was not published there."""

    def redirect_request(self, req: Request, *answer: Any) -> Request | None:
        if urlsplit(answer[-1])[:2] != urlsplit(req.full_url)[:2]:
            raise FetchError(f"it leads to {answer[-1]}, another host")
        return super().redirect_request(req, *answer)


_OPENER = build_opener(_SameHost)


@dataclass(frozen=True, slots=True)
class Source:
    """A public trace, compressed with gzip; ``bytes`` and ``sha256`` are of what it holds."""

    url: str
    licence: str
    bytes: int
    sha256: str


def sources() -> dict[str, Source]:
    return {name: Source(**each) for name, each in tomllib.loads(SOURCES.read_text("utf-8")).items()}


def fetch(name: str, source: Source, folder: Path, home: str | None = None) -> bool:
    """Write a trace below ``folder``; return whether it was fetched. Raises FetchError, and then leaves no file."""
    file = folder / f"{name}.json"
    if file.is_file() and hashlib.sha256(file.read_bytes()).hexdigest() == source.sha256:
        return False
    url = home.rstrip("/") + urlsplit(source.url).path if home else source.url
    unfinished = file.with_suffix(".unfinished")
    digest = hashlib.sha256()
    try:
        with _OPENER.open(url, timeout=_WAIT_S) as answer, unfinished.open("wb") as out:
            for part in unpacked(iter(lambda: answer.read(_PART), b""), source.bytes):
                digest.update(part)
                out.write(part)
        if digest.hexdigest() != source.sha256:
            raise ValueError(f"SHA-256 is {digest.hexdigest()}, expected {source.sha256}")
        unfinished.replace(file)
    except (OSError, HTTPException, ValueError, zlib.error, FetchError) as fault:
        raise FetchError(f"{name} from {url}: {fault}") from fault
    finally:
        unfinished.unlink(missing_ok=True)
    return True


def unpacked(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield what a gzip file holds, in bounded parts; raises ValueError unless it holds ``size`` bytes, zlib.error."""
    unpacker = zlib.decompressobj(wbits=31)
    left = size
    for part in parts:
        waiting = part
        while waiting and not unpacker.eof:
            found = unpacker.decompress(waiting, _PART)
            waiting = unpacker.unconsumed_tail
            left -= len(found)
            if left < 0:
                raise ValueError(f"holds more than {size:,} bytes")
            yield found
    if left or not unpacker.eof:
        raise ValueError(f"ends {left:,} bytes early")


def main(arguments: list[str] | None = None) -> int:
    """Fetch all traces; return 1 if one is not available."""
    parser = argparse.ArgumentParser(prog="python -m tests.scoreboard.fetch", description=__doc__)
    parser.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER")
    parser.add_argument("--home", metavar="URL")
    asked = parser.parse_args(arguments)
    asked.into.mkdir(parents=True, exist_ok=True)
    failed = False
    for name, source in sources().items():
        try:
            done = "fetched" if fetch(name, source, asked.into, asked.home) else "there"
        except FetchError as fault:
            failed = True
            sys.stderr.write(f"{fault}\n")
        else:
            sys.stdout.write(f"{name}: {done}, {source.bytes:,} bytes, {source.licence}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
