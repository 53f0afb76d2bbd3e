"""Reports of whole jobs, as the engine and the time lines make them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from demo.recording import Recording
from tests.support.profile_folder import ProfileFolder, event, step, ticks
from tests.support.small_job import JOB, START, Upload, uploads
from tests.unit.local.places import write
from trainguard.core.records import JobRecord
from trainguard.engine.installed import FAMILIES
from trainguard.local.analysis import profile_axis
from trainguard.local.engine import ProfileEvaluation, evaluate_profile
from trainguard.local.pool import WorkerPool
from trainguard.local.profile import read_profile
from trainguard.local.sources import open_folder
from trainguard.report.job.build import BuiltReport, build_report
from trainguard.report.timeline.digest import NodeDigest, NodeDigests

RECORDINGS = Path(__file__).parents[2] / "events" / "jobs"
RECORDED = sorted(path.stem for path in RECORDINGS.glob("*.npz"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"&<!--\u202e\x00"
NOW = START + 86_400.0


@dataclass(frozen=True, slots=True)
class JudgedProfile:
    """A profile that was judged, and put over time."""

    evaluation: ProfileEvaluation
    digests: list[NodeDigest]

    def state(self) -> BuiltReport:
        """Return the report from state alone."""
        return build_report(self.evaluation.job, self.evaluation.records, now=NOW, plan=self.evaluation.plan)

    def full(self) -> BuiltReport:
        """Return the report with time lines."""
        evaluation = self.evaluation
        return build_report(evaluation.job, evaluation.records, now=NOW, plan=evaluation.plan, digests=self.digests)


def judge(place: Path, job: JobRecord | None = None) -> JudgedProfile:
    """Judge the profile at a place, as a job that has ended."""
    profile = read_profile(open_folder(str(place)))
    known = job or JobRecord(profile.root.job, "arn:unknown", "profiles", "", instance_type="ml.g5.12xlarge")
    known = replace(known, instance_count=known.instance_count or profile.instances)
    with WorkerPool(0) as pool:
        tap = NodeDigests(profile_axis(profile, known))
        evaluation = evaluate_profile(known, FAMILIES.plan(known), profile, pool, digests=tap)
    return JudgedProfile(evaluation, tap.in_order())


def recorded(name: str, folder: Path) -> Path:
    """Write a recorded job's profile into a folder."""
    objects = Recording.load(RECORDINGS / f"{name}.npz").objects(JOB, start=START)
    return write(folder, [Upload(each.appears_at, each.key, each.body) for each in objects])


def small(folder: Path, *, low: bool = True) -> Path:
    """Write the small job of two nodes."""
    return write(folder, uploads(low=low))


def cpu_only(folder: Path) -> Path:
    """Write a job without GPUs and without framework metrics, sampled once a minute."""
    profile = ProfileFolder(folder)
    profile.system(ticks(30, every_s=60.0), {"cpu0": 80.0, "cpu1": 20.0})
    return profile.path


def torn(folder: Path) -> Path:
    """Write a job with gaps, bad lines, an object that cannot be read, and a node that stops early."""
    profile = ProfileFolder(folder)
    profile.system(ticks(40), {"gpu0": 90.0, "gpu0_memory": 30.0, "cpu0": 30.0})
    profile.system(ticks(12), {"gpu0": 90.0, "cpu0": 30.0}, node="algo-2")
    profile.files[3].unlink()
    profile.files[5].write_text('{"Type": "gpu"\nnonsense\n', encoding="utf-8")
    profile.files[6].write_bytes(b"\x1f\x8bbroken")
    return profile.path


def hostile(folder: Path) -> Path:
    """Write a job whose series, phases and operators are named to be run by a browser."""
    profile = ProfileFolder(folder)
    profile.system(ticks(20), {"gpu0": 20.0, "gpu0_memory": 10.0, "cpu0": 95.0})
    profile.change("system", lambda text: text.replace('"gpu0"', json.dumps(HOSTILE)))
    steps = [step(number, 2.0 * number, 1.9) for number in range(500)]
    operators = [event("cpu_functions", HOSTILE + str(n), 2.0 * n, 0.5, step_num=HOSTILE) for n in range(9)]
    profile.timeline([*steps, *operators, event(f"Step:ModeKeys.{HOSTILE}", "x", 3.0, 1.0, step_num=HOSTILE)])
    return profile.path
