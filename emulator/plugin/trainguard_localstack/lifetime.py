"""When LocalStack's process ends: with the process that started it, and without delay.

The kernel closes a killed launcher's end of stdin. Threads of a stopped LocalStack could hold the process up for a
minute.
"""

import os
import signal
import threading

from localstack.runtime import events

SWITCH_VARIABLE = "TRAINGUARD_END_WITH_STDIN"


def install() -> None:
    """Watch for the end of the services, and of stdin if the launcher asked for that."""
    threading.Thread(target=_exit_after_services, name="exit-watch", daemon=True).start()
    if os.environ.get(SWITCH_VARIABLE) == "1":
        threading.Thread(target=_stop_after_parent, name="parent-watch", daemon=True).start()


def _exit_after_services() -> None:
    events.infra_stopped.wait()
    os._exit(0)


def _stop_after_parent() -> None:
    # Not sys.stdin: its lock, held by this thread, would abort the interpreter at its end.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
