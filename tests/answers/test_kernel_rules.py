"""All that the rules over kernel profiles say about random verdicts on captures."""

from pathlib import Path

import numpy as np
import pytest

from tests.answers.recorded import compare, judged, plain_result
from trainguard.core.finding import Fact, Severity
from trainguard.kernels.rules.registry import KERNEL_RULES
from trainguard.kernels.rules.rule import KernelRule
from trainguard.kernels.verdict import CaptureVerdict, Proof, RuleVerdict

FOLDER = Path(__file__).with_name("kernels")
VERDICTS = 60
# A rule that fires and one that only informs: the others differ in their words alone.
CHOSEN = ("kernels/GpuGap", "kernels/QueueFull")


def _finding(random: np.random.Generator, rule: str) -> RuleVerdict:
    sure = int(random.choice([0, 1, 1, 2, 3, 4, 1_024]))
    share = float(random.choice([0.0, 0.12345, 0.5, 1.0]))
    return RuleVerdict(
        rule=rule,
        severity=list(Severity)[int(random.integers(len(Severity)))],
        kind="gpu_gap",
        facts=[Fact(name="longest_gap", value=600.0, unit="ms", threshold=500.0), Fact(name="gaps", value=2)],
        value=600.0,
        threshold=500.0,
        gain_ns_per_step=int(random.choice([1, 2_500_000, 4_321_000_000])) if share else 0,
        gain_share=share,
        sure=sure,
        unsure=int(random.choice([0, 1, 2])) if sure else int(random.choice([1, 2])),
        ranks=[f"rank {each}" for each in range(min(max(sure, 1), 4))] if random.random() < 0.9 else [],
        evidence=[Proof(what="gap", duration_ns=600_000, count=2, step=3)] * int(random.integers(3)),
    )


def _verdict(seed: int, rule: str) -> CaptureVerdict:
    """Return a verdict on a capture of a few traces, of which some could not be read or judged."""
    random = np.random.default_rng(seed)
    found = [_finding(random, rule)] if random.random() < 0.6 else []
    judged = sum(each.sure + each.unsure for each in found) or int(random.choice([0, 0, 1, 2, 1_500]))
    unread, others = (int(each) for each in random.choice([0, 0, 1, 2], size=2))
    traces = max(judged + unread + others, 1)
    return CaptureVerdict(
        capture="20261121T081000Z-0123abcd",
        version="v",
        run="run",
        folder="f/",
        at=1_795_248_600.0,
        traces=traces,
        judged=judged,
        unread=unread,
        unread_why={"a.json": "it is no trace"} if unread and random.random() < 0.7 else {},
        world_size=None,
        steps=int(random.choice([1, 2])),
        gpus=[],
        busy_share=None,
        step_ns=None,
        rules=found,
        notes=[],
        cut=min(int(random.choice([0, 0, 1, 2])), traces - unread),
        framework=str(random.choice(["", "pytorch"])),
    )


@pytest.mark.parametrize("rule", [each for each in KERNEL_RULES if each.name in CHOSEN], ids=lambda rule: rule.name)
def test_rules_over_random_verdicts_match_the_reviewed(rule: KernelRule) -> None:
    answers = {
        f"verdict {seed}": judged([plain_result(rule.judge(_verdict(seed, rule.name)))]) for seed in range(VERDICTS)
    }
    compare(answers, FOLDER / f"{rule.name.rpartition('/')[2]}.json")
