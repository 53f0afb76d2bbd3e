"""Public traces from a server of this machine: what is published is taken, all else is refused."""

import gzip
import hashlib
import lzma
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.scoreboard import fetch as fetching
from tests.scoreboard.fetch import FetchError, Source, fetch, main, sources

TRACE = b'{"traceEvents": []}' * 200_000
STORED = Path("tests/data/kernel_traces")


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Lead from ``/moved/<place>`` to a place, and end ``/cut/<file>`` early; serve other files."""
        kind, _, rest = self.path[1:].partition("/")
        if kind == "moved":
            self.send_response(302)
            self.send_header("Location", rest)
            self.end_headers()
        elif kind == "cut":
            body = Path(self.directory, rest).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[:-900])
        else:
            super().do_GET()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    served = tmp_path / "served"
    served.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(served)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def published(content: bytes, name: str = "trace.gz") -> Source:
    return Source(f"https://example.com/{name}", "MIT", len(content), hashlib.sha256(content).hexdigest())


def test_published_trace_is_fetched_once(home: str, tmp_path: Path) -> None:
    (tmp_path / "served" / "trace.gz").write_bytes(gzip.compress(TRACE))
    assert fetch("small", published(TRACE), tmp_path, home)
    assert (tmp_path / "small.json").read_bytes() == TRACE
    assert not fetch("small", published(TRACE), tmp_path, "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        pytest.param(gzip.compress(TRACE[:-1] + b" "), "SHA-256 is", id="changed"),
        pytest.param(gzip.compress(TRACE + b" " * 50_000_000), "holds more than 3,800,000 bytes", id="bomb"),
        pytest.param(gzip.compress(TRACE)[:-900], "bytes early", id="cut"),
        pytest.param(gzip.compress(TRACE[:-1]), "ends 1 bytes early", id="short"),
        pytest.param(b"<html>moved</html>", "incorrect header", id="page"),
        pytest.param(None, "404", id="gone"),
    ],
)
def test_what_is_not_the_published_trace_is_refused(
    served: bytes | None, reason: str, home: str, tmp_path: Path
) -> None:
    if served is not None:
        (tmp_path / "served" / "trace.gz").write_bytes(served)
    with pytest.raises(FetchError, match=rf"small from {home}/trace\.gz: .*{reason}"):
        fetch("small", published(TRACE), tmp_path, home)
    assert [each.name for each in tmp_path.iterdir()] == ["served"]


def test_a_redirect_is_followed_within_its_host_alone(home: str, tmp_path: Path) -> None:
    (tmp_path / "served" / "trace.gz").write_bytes(gzip.compress(TRACE))
    assert fetch("same", published(TRACE, f"moved/{home}/trace.gz"), tmp_path, home)
    other = home.replace("127.0.0.1", "localhost")
    with pytest.raises(FetchError, match=rf"it leads to {other}/trace\.gz, another host"):
        fetch("other", published(TRACE, f"moved/{other}/trace.gz"), tmp_path, home)
    with pytest.raises(FetchError, match="not allowed"):
        fetch("file", published(TRACE, f"moved/file://{tmp_path}/served/trace.gz"), tmp_path, home)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["same.json", "served"]


def test_a_transfer_that_ends_early_leaves_no_file(home: str, tmp_path: Path) -> None:
    (tmp_path / "served" / "trace.gz").write_bytes(gzip.compress(TRACE))
    with pytest.raises(FetchError, match=r"small from .*(early|IncompleteRead|more expected)"):
        fetch("small", published(TRACE, "cut/trace.gz"), tmp_path, home)
    assert [each.name for each in tmp_path.iterdir()] == ["served"]


def test_one_trace_that_fails_leaves_the_others(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "served" / "good.gz").write_bytes(gzip.compress(TRACE))
    known = {"bad": published(TRACE, "bad.gz"), "good": published(TRACE, "good.gz")}
    monkeypatch.setattr(fetching, "sources", lambda: known)
    assert main(["--into", str(tmp_path / "into"), "--home", home]) == 1
    assert [each.name for each in (tmp_path / "into").iterdir()] == ["good.json"]
    said = capsys.readouterr()
    assert "good: fetched, 3,800,000 bytes, MIT" in said.out
    assert said.err.startswith("bad from ")


def test_sources_are_the_stored_traces_at_fixed_commits() -> None:
    for name, source in sources().items():
        trace = lzma.decompress((STORED / f"{name}.json.xz").read_bytes())
        assert (len(trace), hashlib.sha256(trace).hexdigest()) == (source.bytes, source.sha256)
        assert len(urlsplit(source.url).path.split("/")[3]) == 40
        assert source.licence in {"MIT", "BSD-3-Clause"}
