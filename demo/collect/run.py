"""Runs a training under the collector, and waits for what the deployed stack says about it."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from demo.live.expect import Check, stack
from demo.live.quiet import Quiet
from demo.live.show import Screen
from demo.live.stage import Deployment, deployment
from demo.live.watch import Watcher

HERE = Path(__file__).resolve().parent
LASTS_S = 100
INTERVAL_MS = 200
# The rule waits for 17 minutes by default; the training lasts for less than two.
SETTINGS = {"LowGPUUtilization_window_s": 15, "LowGPUUtilization_patience_s": 15}

FIRING_RULE = "LowGPUUtilization"
SCHEDULE_S = 3.0
_LOOK_EVERY_S = 0.5
# A collector that has not ended by then is not waited for, seconds.
_END_S = 180.0


def run(*, folder: Path, screen: Screen) -> bool:
    """Run the demonstration, logs below ``folder``; return whether all was seen. Raises EmulatorError, StageError."""
    screen.say("starting the emulator, and synthesising the template for AWS in parallel")
    with deployment(folder, lambda_python=Path(sys.executable), minute_s=SCHEDULE_S, on_phase=screen.phase) as deployed:
        job = f"collected-{time.strftime('%H%M%S', time.gmtime())}"
        code = train(deployed, job=job, folder=folder, screen=screen)
        watcher = Watcher(deployed)
        settle(watcher, job, screen)
        rows, report = watcher.rows(job), watcher.report(job)
        screen.table(job, rows)
        page = watcher.page(job)
        if page is not None:
            (folder / f"{job}.html").write_bytes(page)
            screen.text(f"Open the report in a browser: {folder / f'{job}.html'}\n")
        screen.text(verdict(report))
        status = deployed.emulator.client("s3").get_object(Bucket=deployed.bucket, Key=_status_key(job))["Body"].read()
        checks = [
            Check(job, "exit code of the wrapped command", 0, code),
            *judge(job, rows=rows, report=report, alerts=watcher.alerts.get(job, []), status=json.loads(status)),
            *stack(watcher.failed_executions(), watcher.dead_letters()),
        ]
        screen.checks(checks)
    seen = all(check.holds for check in checks)
    screen.say("all was seen that was expected" if seen else f"not all was seen; logs: {folder}", "bold")
    return seen


def train(deployed: Deployment, *, job: str, folder: Path, screen: Screen) -> int:
    """Run the training as its owner would, with the collector before the command; return its exit code."""
    device = folder / "device"
    device.write_bytes(bytes(16))
    environment = {
        **os.environ,
        **deployed.emulator.environment(),
        "TRAINGUARD_OUTPUT": deployed.outputs["ProfilerOutputUri"],
        "TRAINGUARD_JOB": job,
        "TRAINGUARD_NODE": "node-1",
        "TRAINGUARD_INTERVAL_MS": str(INTERVAL_MS),
        "TRAINGUARD_SETTINGS": json.dumps(SETTINGS),
        "TRAINGUARD_SPOOL": str(folder / "spool"),
        "PYTHONPATH": os.pathsep.join([str(HERE / "stand_in"), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep),
        "DEMO_DEVICE": str(device),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    training = [sys.executable, str(HERE / "train.py"), str(LASTS_S), str(device)]
    screen.say(f"python -m trainguard_collector -- python {' '.join(training[1:])}")
    screen.say("the loop's network stands in for the GPU: the GPU is busy while the network computes")
    command = [sys.executable, "-m", "trainguard_collector", "--", *training]
    began_s = time.monotonic()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            screen.say(line.rstrip())
        code = process.wait(_END_S)
    screen.phase("training ended, its profile is in the bucket", time.monotonic() - began_s)
    return code


def settle(watcher: Watcher, job: str, screen: Screen) -> None:
    """Wait until the job is closed and nothing is under way, as long as something changes."""
    quiet = Quiet(time.monotonic)
    while not watcher.is_settled([job]):
        screen.rows(job, watcher.rows(job))
        for document in watcher.receive_alerts():
            screen.alert(document)
        quiet.note(watcher.movement([job]))
        if quiet.is_over:
            screen.say("nothing changes any more, and not all is done; judging what there is", "bold red")
            return
        time.sleep(_LOOK_EVERY_S)
    for document in watcher.receive_alerts():
        screen.alert(document)


def verdict(report: Mapping[str, Any] | None) -> str:
    if report is None:
        return "there is no report"
    summary = report.get("verdict") or {}
    return "\n".join(str(summary[name]) for name in ("health", "change", "cost") if summary.get(name))


def judge(
    job: str,
    *,
    rows: Mapping[str, Mapping[str, Any]],
    report: Mapping[str, Any] | None,
    alerts: Sequence[Mapping[str, Any]],
    status: Mapping[str, Any],
) -> list[Check]:
    """Return the checks: the starved GPU is found, and the collector has lost nothing."""
    lost = {name: status.get(name) for name in ("dropped_minutes", "lost_snapshots", "failed_uploads")}
    return [
        Check(job, "the rule that fires", "FIRED", rows.get(FIRING_RULE, {}).get("Status")),
        Check(job, f"an alert of {FIRING_RULE}", True, FIRING_RULE in {alert.get("rule") for alert in alerts}),
        Check(job, "its finding is in the report", True, FIRING_RULE in ((report or {}).get("fired") or [])),
        Check(job, "what the collector lost", dict.fromkeys(lost, 0), lost),
        Check(job, "how the collector says that it ended", "Completed", status.get("outcome")),
    ]


def _status_key(job: str) -> str:
    return f"{job}/collector/node-1.status.json"
