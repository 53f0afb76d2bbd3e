"""Starts a sampler's process."""

import json
import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from trainguard_collector.settings import Settings

MARK = "TRAINGUARD_COLLECTOR_PID"
# Both are in the environment of the observed process, and so of those that it starts.
NODE_SETTINGS = "TRAINGUARD_COLLECTOR_SETTINGS"

_PACKAGES = str(Path(__file__).resolve().parents[1])
_DYING_S = 2.0
_CODE = (
    "import json, sys; given = json.loads(sys.argv[1]); sys.path[:] = given['path']; "
    "from trainguard_collector.process import main; main(given['settings'], given['parent'])"
)


def spawn(settings: Settings) -> "subprocess.Popen[bytes]":
    """Start the sampler, in a session of its own so that the terminal's signals do not reach it.

    Its standard input takes one line. No module of the user's folder can take the place of one that it imports.
    """
    here = (str(Path.cwd()), "", ".", str(Path(sys.argv[0] or ".").resolve().parent) if sys.argv else "")
    path = [entry for entry in sys.path if entry not in here]
    if _PACKAGES not in path:
        path.append(_PACKAGES)
    given = json.dumps({"path": path, "settings": settings.to_json(), "parent": os.getpid()})
    # It starts no other sampler, and its few threads need no heaps of their own.
    own = {name: value for name, value in os.environ.items() if name != "TRAINGUARD_OUTPUT"}
    sampler = subprocess.Popen(  # this interpreter, with words of our own
        [sys.executable, "-I", "-c", _CODE, given],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
        env={"MALLOC_ARENA_MAX": "1", **own},
    )
    # Processes that this one starts record into the same job, whatever name they would find themselves.
    os.environ[NODE_SETTINGS] = json.dumps({"host": socket.gethostname(), "settings": settings.to_json()})
    return sampler


def finish(sampler: "subprocess.Popen[bytes]", word: str, within_s: float) -> None:
    """Tell the sampler how the observed process ended, and let it send what is left for so long."""
    with suppress(OSError):  # a sampler that is gone is none of the caller's troubles
        if sampler.stdin is not None:
            sampler.stdin.write(f"{word}\n".encode())
            sampler.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        sampler.wait(within_s)
        return
    end(sampler)


def end(sampler: "subprocess.Popen[bytes]") -> None:
    """Kill a sampler; one that hangs in a call of the kernel's is not waited for."""
    sampler.kill()
    with suppress(subprocess.TimeoutExpired):
        sampler.wait(_DYING_S)
