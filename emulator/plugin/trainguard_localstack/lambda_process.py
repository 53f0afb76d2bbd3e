"""The parent's side of one Lambda execution environment."""

import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from .lambda_worker import END_OF_LOG

WORKER = Path(__file__).with_name("lambda_worker.py")
INIT_TIMEOUT_S = 60.0
LOG_TIMEOUT_S = 2.0

# Of LocalStack's own environment a function sees only what a process needs to run at all.
INHERITED = ("PATH", "LANG", "LD_LIBRARY_PATH", "TMPDIR", "SSL_CERT_FILE")


# What one invocation gave: JSON text, whether it is an error, and what the function logged.
Reply = tuple[str, bool, str]


def python_path(code: Path, layers: list[Path], runtime: str, packages: Path) -> str:
    """Return PYTHONPATH for a function: its code, its layers, later ones first, and the runtime's packages."""
    folders = [code]
    for layer in reversed(layers):
        folders += [layer / "python" / "lib" / runtime / "site-packages", layer / "python"]
    folders.append(packages)
    return os.pathsep.join(str(folder) for folder in folders)


@dataclass(frozen=True, slots=True)
class _Child:
    process: subprocess.Popen[str]
    requests: IO[str]
    replies: queue.SimpleQueue[dict[str, Any] | None] = field(default_factory=queue.SimpleQueue)
    log: queue.SimpleQueue[str | None] = field(default_factory=queue.SimpleQueue)

    def collect_log(self) -> str:
        """Read up to the end-of-log mark, or up to the end of the stream."""
        lines: list[str] = []
        while True:
            try:
                line = self.log.get(timeout=LOG_TIMEOUT_S)
            except queue.Empty:
                break
            if line is None or line.startswith(END_OF_LOG):
                break
            lines.append(line)
        return "".join(lines)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class LambdaProcess:
    """A child process that runs one function's handler, one invocation at a time, in ``folder``."""

    def __init__(self, *, interpreter: str, environment: Mapping[str, str], folder: Path, timeout_s: float) -> None:
        # -S: none of the interpreter's own packages; -P: none of the modules beside the worker.
        self._command = [interpreter, "-S", "-P", str(WORKER)]
        self._environment = {k: os.environ[k] for k in INHERITED if k in os.environ} | dict(environment)
        self._folder = folder
        self._timeout_s = timeout_s
        self._busy = threading.Lock()
        self._child: _Child | None = None
        self._init_error: dict[str, object] | None = None
        self._init_log = ""

    def start(self) -> None:
        """Start the child and wait until its handler is loaded, or until that failed."""
        with self._busy:
            self._start()

    def invoke(self, request: Mapping[str, str]) -> Reply:
        """Send one request and wait for its reply, for at most the function's timeout.

        A function that failed to load is loaded once more, as AWS does; so is one whose process has ended.
        """
        request_id = request["invoke-id"]
        with self._busy:
            child = self._child if self._child is not None and self._child.process.poll() is None else self._start()
            if self._init_error is not None:
                failed, self._init_error = self._init_error, None
                return json.dumps(failed | {"requestId": request_id}), True, self._take_init_log()
            try:
                child.requests.write(json.dumps(dict(request)) + "\n")
                child.requests.flush()
                reply = child.replies.get(timeout=self._timeout_s)
            except (queue.Empty, BrokenPipeError) as error:
                child.kill()
                return _failure(request_id, error, self._timeout_s, self._read_log(child))
            if reply is None:
                return _failure(request_id, None, self._timeout_s, self._read_log(child))
            return reply["payload"], not reply["ok"], self._read_log(child)

    def stop(self) -> None:
        """End the child; an invocation in flight may finish first, for at most the function's timeout."""
        free = self._busy.acquire(timeout=self._timeout_s)
        try:
            if self._child is not None:
                self._child.kill()
        finally:
            if free:
                self._busy.release()

    def _start(self) -> _Child:
        self._init_error = None
        child = self._child = self._spawn()
        try:
            first = child.replies.get(timeout=INIT_TIMEOUT_S)
        except queue.Empty:
            first = None
        if first is None or not first["ready"]:
            exited: dict[str, object] = {"errorMessage": "Error: Runtime exited", "errorType": "Runtime.ExitError"}
            self._init_error = exited if first is None else first["error"]
            child.kill()
        self._init_log = child.collect_log()
        return child

    def _spawn(self) -> _Child:
        read_end, write_end = os.pipe()
        process = subprocess.Popen(  # noqa: S603 -- the interpreter that the launcher named, with our own worker
            [*self._command, str(write_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            cwd=self._folder,
            encoding="utf-8",
            errors="replace",
            pass_fds=(write_end,),
        )
        os.close(write_end)
        if process.stdin is None or process.stdout is None:
            raise OSError(f"{self._command[0]}: started without pipes")
        child = _Child(process, process.stdin)
        threading.Thread(target=_read_replies, args=(read_end, child.replies), daemon=True).start()
        threading.Thread(target=_read_lines, args=(process.stdout, child.log), daemon=True).start()
        return child

    def _read_log(self, child: _Child) -> str:
        """Return what the invocation logged, and before the first one what loading the handler logged."""
        return self._take_init_log() + child.collect_log()

    def _take_init_log(self) -> str:
        log, self._init_log = self._init_log, ""
        return log


def _failure(request_id: str, cause: Exception | None, timeout_s: float, log: str) -> Reply:
    if isinstance(cause, queue.Empty):
        message, kind = f"Error: Task timed out after {timeout_s:.2f} seconds", "Sandbox.Timedout"
    else:
        message, kind = "Error: Runtime exited without providing a reason", "Runtime.ExitError"
    return json.dumps({"errorMessage": f"RequestId: {request_id} {message}", "errorType": kind}), True, log


def _read_replies(read_end: int, replies: queue.SimpleQueue[dict[str, Any] | None]) -> None:
    with os.fdopen(read_end, encoding="utf-8") as stream:
        for line in stream:
            replies.put(json.loads(line))
    replies.put(None)


def _read_lines(stream: IO[str], log: queue.SimpleQueue[str | None]) -> None:
    with stream:
        for line in stream:
            log.put(line)
    log.put(None)
