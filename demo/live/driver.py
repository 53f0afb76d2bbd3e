"""Plays three recorded jobs through the deployed stack, and judges what came of it."""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from demo.live import expect
from demo.live.expect import Check
from demo.live.feed import JobFeed, Progress, is_fire_under_way, next_feed
from demo.live.quiet import GIVES_UP_AFTER_S, Quiet
from demo.live.show import Screen
from demo.live.stage import Deployment, deployment
from demo.live.watch import Watcher
from demo.make_recordings import RECORDINGS
from demo.recording import Recording
from emulator.run import describe

# The recordings are 25 min long and end in the past: a name that lies ahead of its object's time is refused.
START_BEFORE_NOW_MINUTES = 27

SCHEDULE_S = 3.0
_LOOK_EVERY_S = 0.3


def cast_jobs(now: float) -> tuple[JobFeed, JobFeed, JobFeed]:
    """Return three jobs: the first may be stopped, the second may not, the third gives no reason to.

    Each began ``START_BEFORE_NOW_MINUTES`` before ``now``, epoch seconds, and is named after it.
    """
    start = (int(now) // 60 - START_BEFORE_NOW_MINUTES) * 60
    suffix = time.strftime("%H%M%S", time.gmtime(now))
    slow, healthy = (Recording.load(RECORDINGS / f"{name}.npz") for name in ("slow_data_loader", "healthy"))
    return (
        JobFeed(job=f"slow-loader-stop-allowed-{suffix}", recording=slow, start=start),
        JobFeed(job=f"slow-loader-{suffix}", recording=slow, start=start),
        JobFeed(job=f"healthy-{suffix}", recording=healthy, start=start),
    )


def run(*, folder: Path, screen: Screen, keep: bool) -> bool:
    """Run the demonstration, with logs in ``folder``; return whether all was seen that must be.

    The last three lines say what was shown. ``keep`` waits before them, with the emulator running, until an interrupt.
    Raises EmulatorError or StageError when the stage cannot be set.
    """
    screen.say("starting the emulator, and synthesising the template for AWS in parallel")
    with deployment(folder, lambda_python=Path(sys.executable), minute_s=SCHEDULE_S, on_phase=screen.phase) as deployed:
        show = Show(deployed=deployed, feeds=cast_jobs(time.time()), screen=screen, folder=folder)
        try:
            checks, lines = show.play()
        finally:
            if keep:
                screen.text(f"\nThe emulator keeps running; interrupt (Ctrl-C) to end it.\n{how_to_look(deployed)}")
                with suppress(KeyboardInterrupt):
                    while True:
                        time.sleep(3600)
    seen = all(check.holds for check in checks)
    if not seen:
        screen.say(f"not all was seen that was expected; logs: {folder}", "bold red")
    for line in lines:
        screen.text(line)
    return seen


class Show:
    """One performance; reports are copied into ``folder``."""

    def __init__(self, *, deployed: Deployment, feeds: Sequence[JobFeed], screen: Screen, folder: Path) -> None:
        self._deployed = deployed
        self._feeds = feeds
        self._screen = screen
        self._folder = folder
        self._watcher = Watcher(deployed)
        self._s3 = deployed.emulator.client("s3")
        self._progress: dict[str, Progress] = {}
        self._held: set[str] = set()
        self._jobs = [feed.job for feed in feeds]
        self._running = set(self._jobs)

    def play(self) -> tuple[list[Check], list[str]]:
        """Create the jobs, upload their profiles, wait until all is done, and judge: checks, and a line a job."""
        feeds, screen = self._feeds, self._screen
        for feed in feeds:
            self._deployed.emulator.backdate_training_job(feed.job, began=datetime.fromtimestamp(feed.start, UTC))
            self._deployed.create_training_job(feed, may_be_stopped=feed is feeds[0])
        screen.say(f"training jobs created: {', '.join(feed.job for feed in feeds)}")
        began_s = time.monotonic()
        with screen.bars(feeds):
            self._upload()
        screen.phase(f"{sum(len(feed.uploaded) for feed in feeds)} objects uploaded", time.monotonic() - began_s)
        began_s = time.monotonic()
        self._settle()
        screen.phase("all jobs closed, nothing under way", time.monotonic() - began_s)
        return self._judge()

    def _upload(self) -> None:
        """Upload until every job has ended, as fast as the evaluation allows."""
        quiet = Quiet(time.monotonic)
        self._look()
        while self._running:
            feed = next_feed(self._feeds, self._progress, held=self._held)
            if feed is not None:
                uploaded = feed.take()
                self._s3.put_object(Bucket=self._deployed.bucket, Key=uploaded.key, Body=uploaded.body)
                continue
            self._look()
            self._end_jobs()
            quiet.note((self._watcher.movement(self._jobs), sum(len(each.uploaded) for each in self._feeds)))
            if quiet.is_over:
                self._screen.say(self._awaited(), "bold red")
                return
            time.sleep(_LOOK_EVERY_S)

    def _settle(self) -> None:
        """Wait until nothing is under way, as long as something changes."""
        quiet = Quiet(time.monotonic)
        while not self._watcher.is_settled(self._jobs):
            quiet.note(self._watcher.movement(self._jobs))
            if quiet.is_over:
                waited = f"nothing has changed for {GIVES_UP_AFTER_S:.0f} s"
                self._screen.say(f"{waited}, and not all is done; judging what there is", "bold red")
                break
            self._show_alerts()
            time.sleep(_LOOK_EVERY_S)
        self._look()

    def _look(self) -> None:
        self._held.clear()
        for feed in self._feeds:
            self._progress[feed.job] = self._watcher.progress(feed.job)
            rows = self._watcher.rows(feed.job)
            self._screen.rows(feed.job, rows)
            if is_fire_under_way(rows):
                self._held.add(feed.job)
        self._screen.progress(self._feeds, self._progress)
        self._show_alerts()

    def _show_alerts(self) -> None:
        for document in self._watcher.receive_alerts():
            self._screen.alert(document)

    def _end_jobs(self) -> None:
        """Let a stopped job cease to upload, and one that has uploaded everything end by itself."""
        for feed in self._feeds:
            if feed.job not in self._running:
                continue
            status = self._watcher.status(feed.job)
            if status != "InProgress" and not feed.stopped:
                feed.stop()
                minute = f"minute {feed.uploaded_minutes:.1f}"
                self._screen.say(f"{feed.job} is {status} at {minute}: it writes its last files, and no more", "bold")
            if feed.upcoming is None:
                if status == "InProgress":
                    self._deployed.emulator.finish_training_job(feed.job)
                    self._screen.say(f"{feed.job} has ended by itself")
                self._running.discard(feed.job)

    def _judge(self) -> tuple[list[Check], list[str]]:
        screen = self._screen
        stopped = f"it was stopped at minute {self._feeds[0].uploaded_minutes:.0f}, as its tag allows"
        judges = (
            (expect.stopped_job, stopped),
            (expect.reported_job, "it ran to its end, as it has no tag that allows a stop"),
            (expect.quiet_job, "it ran to its end"),
        )
        checks: list[Check] = []
        lines: list[str] = []
        for feed, (judge, ended) in zip(self._feeds, judges, strict=True):
            seen = self._watcher.job(feed)
            of_job = judge(seen)
            checks += of_job
            lines.append(expect.shown(seen, of_job, ended=ended))
            screen.table(feed.job, seen.rows)
            calls = ", ".join(f"at {call['time']}" for call in seen.stop_calls) or "none"
            screen.text(
                f"TrainingJobStatus: {seen.status}; StopTrainingJob calls: {calls}\n"
                f"Report: {seen.page_uri}\nOpen a copy in a browser: {self._copy_page(feed)}\n"
            )
        checks += expect.stack(self._watcher.failed_executions(), self._watcher.dead_letters())
        screen.checks(checks)
        return checks, lines

    def _copy_page(self, feed: JobFeed) -> str:
        """Copy a job's report out of the bucket; return where to, or that there is none."""
        page = self._watcher.page(feed.job)
        if page is None:
            return "there is none"
        copy = self._folder / feed.job / "report.html"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(page)
        return str(copy)

    def _awaited(self) -> str:
        parts = []
        for feed in self._feeds:
            applied = self._progress[feed.job].applied(feed.uploaded)
            parts.append(f"{feed.job}: {applied} of {len(feed.uploaded)} uploaded objects applied")
        dead = ", ".join(f"{count} in {queue}" for queue, count in self._watcher.dead_letters().items())
        return f"nothing has changed for {GIVES_UP_AFTER_S:.0f} s. {'; '.join(parts)}. Dead letters: {dead}"


def how_to_look(deployed: Deployment) -> str:
    """Return what to type to look around in the deployed stack."""
    outputs, put = deployed.outputs, "aws ssm put-parameter --overwrite --type String"
    commands = (
        f"aws dynamodb scan --table-name {outputs['RuleStateTable']}",
        f"aws s3 ls --recursive s3://{deployed.bucket}/ | grep rule-output",
        f"aws stepfunctions list-executions --state-machine-arn {outputs['FireStateMachineArn']}",
        f"{put} --name {outputs['StopSwitchOverrideParameter']} --value dry-run",
        "aws sagemaker list-training-jobs",
    )
    return describe(deployed.emulator) + "\n".join(commands) + "\n"
