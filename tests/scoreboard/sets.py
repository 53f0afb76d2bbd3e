"""The labelled sets, and how each tool answers them; a set imports what it needs when it runs."""

import gzip
import json
import lzma
import math
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.scoreboard.score import Score

ROOT = Path(__file__).parents[2]
TORCH = ROOT / "build" / "torch" / "bin" / "python"
OURS = "TrainGuard"
PUBLISHED_HANGS = {"gpu_error": {12, 14}, "lock_gil": {9, 14}}
# Runs fr_trace on each folder that it is given, and prints what it says as a document of texts.
FR_TRACE = """
import contextlib, io, json, logging, sys
from torch.distributed.flight_recorder import fr_trace
said = {}
for folder in sys.argv[1:]:
    sys.argv = ["fr_trace", folder, "--prefix", "_dump_", "--allow-incomplete-ranks"]
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logging.getLogger().addHandler(handler)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            fr_trace.main()
        except BaseException as fault:
            out.write(f"{type(fault).__name__}: {fault}")
    logging.getLogger().removeHandler(handler)
    said[folder] = out.getvalue()
print(json.dumps(said))
"""
# Ranks that it calls missing, culprits, or without a dump.
_RANKS = re.compile(r"(?:missing ranks|culprit rank|dumps from ranks)[: ({]*([0-9]+(?:, [0-9]+)*)", re.IGNORECASE)


def published_hangs(folder: Path) -> Mapping[Path, set[int]]:
    """Write two real hangs of 16 ranks, as PyTorch writes dumps; return the planted ranks by folder."""
    import pickle  # noqa: PLC0415 -- fr_trace reads nothing else; ours never loads it

    for name in PUBLISHED_HANGS:
        (folder / name).mkdir()
        recorded = ROOT / "tests" / "data" / "flight_recorder" / f"{name}.json.xz"
        for rank, dump in json.loads(lzma.decompress(recorded.read_bytes())).items():
            (folder / name / f"_dump_{rank}").write_bytes(pickle.dumps(dump))
    return {folder / name: ranks for name, ranks in PUBLISHED_HANGS.items()}


def generated_hangs(folder: Path) -> Mapping[Path, set[int]]:
    """Write nine hangs of each of twelve kinds, at 4 to 16 ranks; return the planted ranks by folder."""
    from tests.hangs.simulated import KINDS  # noqa: PLC0415
    from tests.hangs.test_culprits import planted  # noqa: PLC0415

    found = {}
    for kind in KINDS:
        for seed in range(9):
            job, place = planted(kind, seed), folder / f"{kind}-{seed}"
            place.mkdir()
            job.run()
            job.write(place, as_json=False, only_active=seed % 3 == 0)
            for dump in place.iterdir():
                dump.rename(place / dump.name.replace("nccl_trace_rank_", "_dump_"))
            assert job.fault is not None
            found[place] = set(job.fault.ranks)
    return found


def our_hangs(cases: Mapping[Path, set[int]]) -> Score:
    """All planted ranks are named, and no other."""
    from trainguard.local.hangs import judge_hang  # noqa: PLC0415

    return Score.of_cases(OURS, [(each.name, set(judge_hang(str(each)).culprits) == at) for each, at in cases.items()])


def fr_trace(cases: Mapping[Path, set[int]]) -> Score:
    """PyTorch's analyser names all planted ranks and no other: missing ones, culprits, and those without a dump."""
    command = [str(TORCH), "-c", FR_TRACE, *map(str, cases)]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT / "build")
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    named = {
        folder: {int(rank) for ranks in _RANKS.findall(text) for rank in ranks.split(",")}
        for folder, text in said.items()
    }
    return Score.of_cases("fr_trace", [(each.name, named[str(each)] == ranks) for each, ranks in cases.items()])


def _in_folder(write: Callable[[Path], Mapping[Path, set[int]]], judge: Callable[..., Score]) -> Callable[[], Score]:
    def judged() -> Score:
        with tempfile.TemporaryDirectory() as folder:
            return judge(write(Path(folder)))

    return judged


def stragglers() -> Score:
    """The slowdown of two real jobs is the published one within 1 %, as are the worst rank, stage and operation."""
    from tests.stragglers.judged import judged  # noqa: PLC0415

    worst = {"AR": {"rank": 0, "operation": "backward-compute"}, "ST": {"rank": 7, "operation": "forward-compute"}}
    answers = []
    for name, expected in worst.items():
        data = ROOT / "tests" / "data" / "stragglers"
        found = judged(gzip.decompress((data / f"{name}.csv.gz").read_bytes()))
        published = json.loads((data / f"{name}.json").read_bytes())["blocking_slowdown"]
        right = abs(found.slowdown / published - 1) <= 0.01 and expected.items() <= found.worst.items()
        answers.append((name, right))
    return Score.of_cases(OURS, answers)


def kernel_time() -> Score:
    """The time in which kernels of a public trace compute is that of its events to the nanosecond."""
    from tests.support import peer_table  # noqa: PLC0415

    traces = sorted(peer_table.of_hta())
    return Score.of_cases(
        OURS, [(each, peer_table.of_events(each)[0] == peer_table.of_product(each)) for each in traces]
    )


def kernel_time_of_hta() -> Score:
    """HolisticTraceAnalysis 0.5.0, as recorded, to the microsecond."""
    from tests.support import peer_table  # noqa: PLC0415

    recorded = sorted(peer_table.of_hta().items())
    right = [(trace, abs(hta * 1_000 - peer_table.of_events(trace)[0]) < 1_000) for trace, hta in recorded]
    return replace(Score.of_cases("HTA 0.5.0", right), ran=False)


def planted_kernels() -> Score:
    """Each planted fault is named with its operator; healthy and damaged traces have no sure finding."""
    from tests.verdicts.kernels.forms import FORMS  # noqa: PLC0415
    from tests.verdicts.kernels.scoring import PYTORCH, SECOND, judged_faults, judged_healthy  # noqa: PLC0415

    forms = [PYTORCH, SECOND, *FORMS]
    answers = [(f"{each.kind} {each.strength} ({form})", each.named) for form in forms for each in judged_faults(form)]
    alarms = [(f"{each.kind} ({form})", bool(each.found)) for form in forms for each in judged_healthy(form)]
    return Score.of_cases(OURS, answers, alarms)


def labelled_jobs() -> Score:
    """The planted cause of a labelled job stands first; healthy jobs have no fire."""
    from tests.verdicts.labelled.running import causes_of  # noqa: PLC0415

    jobs = causes_of()
    answers = [(each.job.name, bool(each.first_is_right)) for each in jobs if each.job.faults]
    return Score.of_cases(OURS, answers, [(each.job.name, bool(each.fired)) for each in jobs if not each.job.faults])


def programs() -> Score:
    """Programs that train badly are named by their losses; repaired ones have no finding."""
    from tests.verdicts.training.scoring import FORMS, SEEDS, figures  # noqa: PLC0415

    answers, alarms = [], []
    for form in FORMS:
        found = figures(form)
        answers += [(f"{name} ({form})", runs > len(SEEDS) // 2) for name, runs in found.broken.items()]
        alarms += [(f"{name} ({form})", bool(runs)) for name, runs in found.repaired.items()]
    return Score.of_cases(OURS, answers, alarms)


def recorded_runs() -> Score:
    """Broken runs of public trainers are named; healthy and unclear ones have no finding."""
    from tests.verdicts.recorded_runs.scoring import judged  # noqa: PLC0415

    found = judged()
    answers = [(each.run, each.named) for each in found if each.label.kind == "broken"]
    alarms = [(each.run, each.false_alarm) for each in found if each.label.kind in {"healthy", "unclear"}]
    return Score.of_cases(OURS, answers, alarms)


def real_runs() -> Score:
    """Wasteful real runs are named; what is said about a run is not false, healthy ones have no finding."""
    from tests.verdicts.real_runs.__main__ import scores  # noqa: PLC0415
    from tests.verdicts.real_runs.scoring import is_to_be_named  # noqa: PLC0415

    found = scores()
    answers = [(each.label.run, each.named and not each.false) for each in found if is_to_be_named(each.label)]
    alarms = [(each.label.run, bool(each.said.findings)) for each in found if each.label.outcome == "healthy"]
    return Score.of_cases(OURS, answers, alarms)


def gate() -> Score:
    """A repeat slowed by 2 % beside five others is a regression; one as it is is none."""
    from tests.verdicts.gate.trial import answers, trials  # noqa: PLC0415
    from trainguard.gate.noise import Answer  # noqa: PLC0415
    from trainguard.gate.runs import Metric  # noqa: PLC0415

    found = answers(Metric.THROUGHPUT, [*trials(Metric.THROUGHPUT, 5, slower=(0.0, 0.02))])
    slowed, same = found[0.02], found[0.0]
    return Score(OURS, slowed[Answer.REGRESSION], slowed.total(), same[Answer.REGRESSION], same.total())


def gate_of_two_percent() -> Score:
    """The same by a gate that takes 2 % below the mean of the baselines for a regression."""
    from tests.verdicts.gate.trial import trials  # noqa: PLC0415
    from trainguard.gate.runs import Metric  # noqa: PLC0415

    fires = {
        part: [
            float(each.levels.levels[0]) < float(np.mean(each.levels.levels[1:])) + math.log(0.98)
            for each in trials(Metric.THROUGHPUT, 5, slower=(part,))
        ]
        for part in (0.0, 0.02)
    }
    return Score("a fixed gate of 2 %", sum(fires[0.02]), len(fires[0.02]), sum(fires[0.0]), len(fires[0.0]))


SETS: Mapping[str, tuple[Callable[[], Score], ...]] = {
    "Hangs of 16 ranks, published": (_in_folder(published_hangs, our_hangs), _in_folder(published_hangs, fr_trace)),
    "Hangs of 4 to 16 ranks, generated": (
        _in_folder(generated_hangs, our_hangs),
        _in_folder(generated_hangs, fr_trace),
    ),
    "Published what-ifs of stragglers": (stragglers,),
    "Kernel time of public traces": (kernel_time, kernel_time_of_hta),
    "Planted faults of kernels": (planted_kernels,),
    "Published repeats, one slowed by 2 %": (gate, gate_of_two_percent),
    "Real runs": (real_runs,),
    "Recorded runs of trainers": (recorded_runs,),
    "Programs that train badly": (programs,),
    "Labelled jobs": (labelled_jobs,),
}


def described() -> Iterator[str]:
    """Say when an answer is right, by set."""
    for name, tools in SETS.items():
        told = tools[0].__doc__ or our_hangs.__doc__ or ""
        yield f"* {name}: {told[0].lower()}{told[1:].rstrip('.')}."
