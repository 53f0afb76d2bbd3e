"""A service on this machine that answers in JSON, for what asks one over HTTP."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

# From the path and the query to a status, and what the body holds: bytes as they are, all else as JSON.
Answer = Callable[[str, Mapping[str, str]], tuple[int, Any]]


@dataclass
class Asked:
    """A request as it came; ``target`` is its path and query as they were sent."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    body: bytes = b""
    target: str = ""


@contextmanager
def json_service(answer: Answer) -> Iterator[tuple[str, list[Asked]]]:
    """Serve answers; yield the URL and the requests, which grow."""
    requests: list[Asked] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # The name is that of the library.
            self.do_GET()

        def do_GET(self) -> None:  # The name is that of the library.
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            requests.append(Asked(parts.path, query, dict(self.headers.items()), self.command, sent, self.path))
            status, body = answer(parts.path, query)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            if status in {301, 302}:
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # The name is that of the library.
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
