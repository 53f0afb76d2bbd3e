"""The sampler's process: samples until its parent says that the job is over, or is gone."""

import json
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from trainguard_collector.accelerators import Accelerators
from trainguard_collector.ending import begin_job, end_job, status_object
from trainguard_collector.exports.outlets import Outlets
from trainguard_collector.hangs.watch import HangWatch
from trainguard_collector.host import Cgroup, Host
from trainguard_collector.layout import job_file_key, status_key
from trainguard_collector.metrics import encode
from trainguard_collector.objects import Handover, objects_folder
from trainguard_collector.outgoing import Outgoing
from trainguard_collector.parentage import signal_when_parent_ends
from trainguard_collector.places import Place, open_place
from trainguard_collector.sender import Leftovers, Sender
from trainguard_collector.settings import Settings
from trainguard_collector.spool import Spool, SpoolInUseError

# A clock that was set back is followed at this rate.
_SLEW = 0.01


class Clock:
    """Epoch seconds: jumps ahead with the system's clock, and follows it back slowly."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall, self._monotonic = wall, monotonic
        self._at = monotonic()
        self._offset = wall() - self._at

    def now(self) -> float:
        """Return the time now, never earlier than before."""
        at, wall = self._monotonic(), self._wall()
        behind = at + self._offset - wall
        self._offset -= min(behind, _SLEW * (at - self._at)) if behind > 0.0 else behind
        self._at = at
        return at + self._offset

    def monotonic(self) -> float:
        return self._monotonic()


def next_tick(now: float, interval_s: float) -> float:
    return (math.floor(now / interval_s + 1e-6) + 1) * interval_s


SLOW_S = 10.0
LONGEST_WAIT_FOR_WRITERS_S = 10.0
# A third of the time after which a node counts as silent: two may be lost.
_STATUS_S = 180.0
# The parent's word for a job that another sampler goes on with.
LEFT = "left"
# The parent is looked for at least this often.
_LONGEST_WAIT_S = 1.0


class Parent:
    """The process that is observed: its last word on standard input, and whether it is still there."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._is_open = True
        self._word = b""
        self.is_gone = False
        self.outcome: Optional[str] = None

    def wait(self, for_s: float) -> None:
        """Return after ``for_s`` seconds, or as soon as the parent has ended or said how it ends."""
        if self._is_open:
            try:
                readable, _, _ = select.select([0], [], [], for_s)
            except InterruptedError:
                readable = []
            if readable:
                self._read()
        else:
            with suppress(InterruptedError):
                select.select([], [], [], for_s)
        if os.getppid() != self.pid:
            self.is_gone = True

    def _read(self) -> None:
        piece = os.read(0, 4096)
        self._word += piece[: 4096 - len(self._word)]
        self._is_open = bool(piece)
        if b"\n" in self._word:
            self.outcome = self._word.split(b"\n")[0].decode("utf-8", "replace")
            self._is_open = False

    @property
    def is_over(self) -> bool:
        return self.is_gone or self.outcome is not None


class Sampler:
    """Samples one node into its spool, and sends the minutes."""

    def __init__(self, settings: Settings, parent: Parent, clock: Clock) -> None:
        self._settings, self._parent, self._clock = settings, parent, clock
        identity = settings.identity
        self._spool = Spool(Path(settings.spool, f"{identity.job}.{identity.node}"), settings.spool_mb * 1024 * 1024)
        self._spool.say_where_it_belongs(settings.output, identity.job, identity.node)
        objects = objects_folder(settings.spool, identity.job, identity.node)
        self._outgoing = Outgoing(objects, identity.job, identity.node, self._spool.budget)
        self._sender = Sender(
            self._spool,
            lambda: open_place(settings.output),
            identity.job,
            identity.node,
            self._outgoing,
            orphan_spools=Leftovers(Path(settings.spool, f"{identity.job}.{identity.node}"), open_place),
        )
        cgroup = Cgroup(settings.cgroup, settings.procfs, settings.cgroup_paths)
        self._host = Host(cgroup, settings.procfs, settings.network_of)
        self._accelerators = Accelerators(clock.monotonic(), settings.interval_ms / 1000.0, settings.gpus)
        self._outlets = Outlets(os.environ, identity, settings.interval_ms / 1000.0)
        self._hangs: Optional[HangWatch] = None
        if settings.with_hangs:
            handover = Handover(objects, settings.spool_mb * 1024 * 1024, self._spool.budget)
            # The command's wrapper trains nothing.
            observed = parent.pid if settings.began_at is None else None
            self._hangs = HangWatch(handover, identity.node, self._sender.wake, observed)
        self._started_at = clock.now() if settings.began_at is None else settings.began_at
        self._slow_at = self._status_at = 0.0
        self._minute: Optional[int] = None
        self._missed = 0
        self._errors: dict[str, str] = {}

    def run(self) -> None:
        """Sample until the parent is over, then send what is left."""
        settings, clock = self._settings, self._clock
        self._sender.start()
        if not settings.identity.in_sagemaker and settings.identity.index in (0, None):
            self._sender.note(job_file_key(settings.identity.job), self._job_file)
        interval_s = settings.interval_ms / 1000.0
        self._host.read(clock.monotonic())
        tick = next_tick(clock.now(), interval_s)
        while not self._parent.is_over:
            if self._hangs is not None:
                self._hangs.look(clock.monotonic(), clock.now())
            left_s = tick - clock.now()
            if left_s > 0.0:
                self._parent.wait(min(left_s, _LONGEST_WAIT_S))
                continue
            self._sample()
            now = clock.now()
            following = next_tick(max(now, tick), interval_s)
            self._missed += max(round((following - tick) / interval_s) - 1, 0)
            tick = following
        self._finish()

    def _job_file(self, place: Place) -> bytes:
        return begin_job(place, self._settings, self._started_at)

    def _sample(self) -> None:
        at, steady = self._clock.now(), self._clock.monotonic()
        minute = int(at // 60) * 60
        with_slow = steady - self._slow_at >= SLOW_S or self._slow_at == 0.0
        try:
            samples = self._host.read(steady) + self._accelerators.read(steady, with_slow=with_slow)
            if with_slow:
                samples += self._host.read_limits()
                self._slow_at = steady
                self._sender.wake()
            self._outlets.take(samples, at, steady, self._accelerators.about)
            lines = encode(samples, self._settings.identity.node, at)
            if lines:
                self._spool.add(minute, lines)
        except Exception as fault:
            self._errors["sampling"] = f"{type(fault).__name__}: {fault}"[:300]
        if minute != self._minute:
            self._minute = minute
            self._sender.wake()
        if steady - self._status_at >= _STATUS_S or self._status_at == 0.0:
            self._status_at = steady
            self._note_status(at)

    def _note_status(self, at: float, **more: Any) -> None:
        """Send the status after what waits now: the counts in it are those of that moment."""
        identity = self._settings.identity
        sampled = {
            "gpus": len(self._accelerators),
            "lost_gpus": self._accelerators.lost,
            "absent": {**self._host.faults, **dict(self._accelerators.faults)},
        }

        def body(_: Place) -> bytes:
            return status_object(self._settings, self._started_at, at, **sampled, **self._counts(), **more)

        self._sender.note(status_key(identity.job, identity.node), body)

    def _counts(self) -> "dict[str, Any]":
        sender, spool = self._sender, self._spool
        hangs = {} if self._hangs is None else self._hangs.faults
        return {
            "sent_minutes": sender.sent_minutes,
            "sent_objects": sender.sent_objects,
            "streams": sorted(self._outgoing.streams),
            "dropped_minutes": spool.dropped_minutes,
            "dropped_objects": spool.budget.dropped_objects,
            "sent_orphan_spools": sender.sent_orphan_spools,
            "lost_snapshots": spool.lost_snapshots,
            "missed_samples": self._missed,
            "failed_uploads": sender.failures,
            "errors": {**self._errors, **sender.faults, **self._outgoing.faults, **hangs, **self._outlets.faults},
        }

    def _finish(self) -> None:
        outcome = outcome_of(self._parent.outcome)
        goes_on = self._settings.is_told and self._parent.outcome in (None, LEFT)
        self._spool.close_minute()
        self._accelerators.close()
        self._outlets.close()
        self._await_writers()
        if self._hangs is not None:
            self._hangs.finish(self._clock.now())
        self._outgoing.prepare(final=True)
        ending = {"outcome": outcome, "ended": self._parent.outcome or "the observed process is gone"}
        self._note_status(self._clock.now(), **({} if goes_on else ending))
        place = self._sender.finish(self._settings.finish_s)
        if place is not None:
            if not goes_on:
                end_job(place, self._settings, self._started_at, outcome, frozenset(self._outgoing.streams))
            self._outgoing.close()
        self._spool.close()
        self._outlets.join()

    def _await_writers(self) -> None:
        """Wait for other training processes of the node, which end a moment later than the observed one."""
        until = self._clock.monotonic() + min(LONGEST_WAIT_FOR_WRITERS_S, self._settings.finish_s / 2.0)
        while self._outgoing.is_awaited(self._parent.pid) and self._clock.monotonic() < until:
            time.sleep(0.1)


def outcome_of(word: Optional[str]) -> str:
    """Return the final status of a job by its parent's last word: ``exit <code>``, ``signal <number>``, ``stopped``."""
    if word == "exit 0":
        return "Completed"
    return "Stopped" if word == "stopped" else "Failed"


def main(text: str, parent_pid: int) -> None:
    """Run a sampler; errors are one line on standard error, and never the parent's."""
    parent = Parent(parent_pid)
    _watch(parent)
    try:
        settings = Settings.from_json(text)
        if _outlasts(parent, settings):
            Sampler(settings, parent, Clock()).run()
        else:
            with suppress(OSError):  # torch's variables name the folder, which is empty
                objects_folder(settings.spool, settings.identity.job, settings.identity.node).rmdir()
    except SpoolInUseError:
        pass
    except Exception as fault:
        with suppress(Exception):
            sys.stderr.write(f"trainguard-collector: {type(fault).__name__}: {fault}\n")
    finally:
        with suppress(Exception):
            sys.stderr.flush()
        os._exit(0)


def _outlasts(parent: Parent, settings: Settings) -> bool:
    """Wait; whether the parent is still there afterwards. A process that records is waited for no longer."""
    until = time.monotonic() + settings.delay_s
    identity = settings.identity
    outgoing = Outgoing(objects_folder(settings.spool, identity.job, identity.node), identity.job, identity.node)
    while not parent.is_over and not outgoing.is_used and (left_s := until - time.monotonic()) > 0.0:
        parent.wait(min(left_s, _LONGEST_WAIT_S))
    return not parent.is_over


def _watch(parent: Parent) -> None:
    """Have the kernel send a signal when the parent dies; its number is compared before each sample."""

    def stop(*_: object) -> None:
        parent.outcome = parent.outcome or "stopped"

    def look(*_: object) -> None:
        parent.wait(0.0)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGUSR1, look)
    with suppress(Exception):
        signal_when_parent_ends(signal.SIGUSR1)


if __name__ == "__main__":
    _arguments = json.loads(sys.argv[1])
    main(_arguments["settings"], _arguments["parent"])
