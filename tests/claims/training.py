"""Recomputes the facts of rules over a training's losses from the logged values, and draws runs to check them on."""

import csv
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.claims.claim import UNCHECKED, Claim, Untrue
from tests.claims.raw import Flags, Floats
from tests.claims.sentences import Sayable, text_claims

LOG = "metrics.csv"
# The ends of a run are of whole groups of values; a last fifth of single values has three at least.
QUARTER, FIFTH, FEWEST_SINGLE = 0.25, 0.2, 3

KINDS = (
    "falls", "flat", "rises", "blows up", "breaks", "breaks for a while", "never finite", "steps back", "zero",
    "reward rises", "reward lost", "kl explodes", "entropy gone", "generator lost",
)  # fmt: skip
CLOSE = 1e-6


@dataclass(frozen=True, slots=True)
class Run:
    """A logged loss: ``steps`` and ``losses``, float64[N] each, in order."""

    steps: Floats
    losses: Floats

    @property
    def finite(self) -> Flags:
        """Which values are numbers."""
        return np.isfinite(self.losses)

    def between(self, first: float, last: float) -> Floats:
        """Return the finite losses of steps from ``first`` to ``last``, both included."""
        return self.losses[self.finite & (self.steps >= first) & (self.steps <= last)]

    def group(self, last: float, values: int) -> Floats:
        """Return so many of the finite losses up to a step."""
        return self.between(-math.inf, last)[-values:]


@dataclass(frozen=True)
class Told:
    """The facts of a finding by name, and the run that it is of."""

    run: Run
    facts: dict[str, Any]

    def value(self, name: str, default: float = math.nan) -> float:
        """Return the value of a fact."""
        return float(self.facts[name]["value"]) if name in self.facts else default


Truth = tuple[float, float]
Recompute = Callable[[Told], Truth]


def _one(value: float) -> Truth:
    return value, value


def _near(value: float) -> Truth:
    within = CLOSE * max(abs(value), CLOSE)
    return value - within, value + within


def _step(told: Told) -> Truth:
    """Return the newest step that the finding is of: that of a number, or of none, or of any value."""
    finite, steps = told.run.finite, told.run.steps
    if "entries_not_finite" in told.facts or (
        "last_bad_step" in told.facts and "zeros" not in told.facts and finite[-1]
    ):
        return _one(float(steps[~finite][-1]))
    return _one(float(steps[-1] if "values_not_finite" in told.facts else steps[finite][-1]))


def _first(told: Told) -> Truth:
    begins = told.value("loss_first_step")
    return _near(float(told.run.between(begins, told.value("loss_first_until", begins)).mean()))


def _first_values(told: Told) -> Truth:
    return _one(float(told.run.between(told.value("loss_first_step"), told.value("loss_first_until")).size))


def _first_step(told: Told) -> Truth:
    return _one(float(told.run.steps[told.run.finite][0]))


def _at_first_step(told: Told) -> Truth:
    return _near(float(told.run.losses[told.run.finite][0]))


def _lowest(told: Told) -> Truth:
    """Return the mean of the group of values that ends at the step of the lowest one."""
    values = int(told.value("loss_first_values", 1.0))
    return _near(float(told.run.group(told.value("loss_lowest_step"), values).mean()))


def _lowest_step(told: Told) -> Truth:
    """Return the step itself where no other group of as many values is lower, NaN where one is."""
    values, step = int(told.value("loss_first_values", 1.0)), told.value("loss_lowest_step")
    finite = told.run.losses[told.run.finite]
    groups = finite[: finite.size // values * values].reshape(-1, values).mean(axis=1)
    return _one(step if told.run.group(step, values).mean() <= groups.min() + CLOSE else math.nan)


def _groups(told: Told) -> tuple[Floats, Floats]:
    """Return the means of the groups of values, the newest of which may have fewer, and the steps at which they end."""
    values, finite = int(told.value("loss_first_values", 1.0)), told.run.finite
    losses, steps = told.run.losses[finite], told.run.steps[finite]
    begins = range(0, losses.size, values)
    ends = [float(steps[min(begin + values, steps.size) - 1]) for begin in begins]
    return np.array([float(losses[begin : begin + values].mean()) for begin in begins]), np.array(ends)


def _fifth(told: Told, number: int) -> int:
    """Return how many of so many groups are the last fifth."""
    fewest = FEWEST_SINGLE if told.value("loss_first_values", 1.0) == 1.0 else 1
    return max(math.ceil(FIFTH * number), fewest)


def _risen_after(told: Told) -> Truth:
    _, ends = _groups(told)
    return _one(float(ends[-_fifth(told, ends.size) - 1]))


def _least_since(told: Told) -> Truth:
    means, _ = _groups(told)
    return _near(float(means[-_fifth(told, means.size) :].min()))


def _last(told: Told) -> Truth:
    """Return the mean of the last quarter of the groups; of a rise, of the last fifth."""
    means, _ = _groups(told)
    quarter = max(round(QUARTER * means.size), 1)
    return _near(float(means[-(_fifth(told, means.size) if "risen_after_step" in told.facts else quarter) :].mean()))


def _change(told: Told) -> Truth:
    first = told.value("loss_first")
    return _near((told.value("loss_last") - first) / abs(first))


def _bad(told: Told) -> Floats:
    """Return the steps without a number: all of them, or those up to the last one that a finding names."""
    steps = told.run.steps[~told.run.finite]
    return steps[steps <= told.value("last_bad_step", math.inf)]


def _zeros(told: Told) -> Floats:
    """Return the steps of the values that are 0, of the row that ends at the last one."""
    zero = told.run.losses == 0.0
    begin = int(np.flatnonzero(~zero)[-1]) + 1
    return told.run.steps[begin:]


def _before_zero(told: Told) -> Truth:
    return _near(float(told.run.losses[(told.run.losses != 0.0) & told.run.finite][-1]))


def _since(told: Told) -> Floats:
    means, _ = _groups(told)
    return means[-_fifth(told, means.size) :]


def _best(told: Told) -> Truth:
    means, _ = _groups(told)
    return _near(float(means[: -_fifth(told, means.size)].max()))


# Facts of a followed series, after its prefix.
FOLLOWED: dict[str, Recompute] = {
    "first": _first,
    "first_step": _first_step,
    "first_values": _first_values,
    "first_until": lambda told: _one(float(told.run.steps[int(told.value("loss_first_values")) - 1])),
    "best": _best,
    "most_since": lambda told: _near(float(_since(told).max())),
    "typical": lambda told: _near(float(np.median(_groups(told)[0]))),
}

SINCE: dict[str, Recompute] = {
    "kl": lambda told: _near(float(_since(told).min())),
    "generator": lambda told: _near(float(_since(told).min())),
    "entropy": lambda told: _near(float(np.abs(_since(told)).max())),
}
PREFIXES = ("reward", "kl", "entropy", "generator", "discriminator")

FACTS: dict[str, Recompute] = {
    "step": _step,
    "loss_first": _first,
    "loss_first_step": _first_step,
    "loss_first_values": _first_values,
    "loss_first_until": lambda told: _one(float(told.run.steps[int(told.value("loss_first_values")) - 1])),
    "loss_at_first_step": _at_first_step,
    "loss_lowest": _lowest,
    "loss_lowest_step": _lowest_step,
    "loss_least_since": _least_since,
    "risen_after_step": _risen_after,
    "loss_last": _last,
    "loss_last_step": lambda told: _one(float(told.run.steps[told.run.finite][-1])),
    "change": _change,
    "rises": lambda told: _one(float(_last(told)[1] > told.value("loss_first"))),
    "values_not_finite": lambda told: _one(float(_bad(told).size)),
    "first_bad_step": lambda told: _one(float((_zeros if "zeros" in told.facts else _bad)(told)[0])),
    "last_bad_step": lambda told: _one(float((_zeros if "zeros" in told.facts else _bad)(told)[-1])),
    "zeros": lambda told: _one(float(_zeros(told).size)),
    "loss_before_zero": _before_zero,
    "values_recorded": lambda told: _one(float(told.run.steps.size)),
    "values": lambda told: _one(float(told.run.steps.size)),
    "entries_not_finite": lambda told: _one(float(bool((~told.run.finite).any()))),
    "untimed_steps": lambda told: _one(float((told.run.steps <= told.value("step")).sum())),
}


def read_runs(folder: Path) -> dict[str, Run]:
    """Return the columns that a folder's log has beside its steps, by name."""
    rows = list(csv.DictReader((folder / LOG).open(encoding="utf-8")))
    steps = np.array([float(row["step"]) for row in rows])
    return {name: Run(steps, np.array([float(row[name]) for row in rows])) for name in rows[0] if name != "step"}


def read_run(folder: Path) -> Run:
    """Return the loss that a folder's log has."""
    return read_runs(folder)["loss"]


def training_claims(folder: Path, report: dict[str, Any]) -> Iterator[Claim | None]:
    """Yield, for each fact and each number in a sentence of a training's findings, what is untrue, or None."""
    runs = read_runs(folder)
    for finding in report["findings"]:
        where = f"{finding['rule']}/{finding['finding_kind']}"
        sayable = Sayable()
        for fact in finding["facts"]:
            sayable.add_fact(fact)
            if fact["name"] == "change":  # said as "fell by", or "rose by"
                sayable.percents.append(100.0 * abs(fact["value"]))
        yield from facts_claims(next(iter(runs.values())), where, finding["facts"], runs)
        yield from text_claims(f"{where}, reason", finding["reason"], sayable)


def _of_prefix(facts: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.replace(f"{prefix}_", "loss_", 1): facts[name] for name in facts if name.startswith(f"{prefix}_")}


def _objective(names: Collection[str]) -> str:
    if "reward" in names:
        return "reinforcement learning"
    return "variational inference" if "kl_loss" in names else "adversarial training"


def facts_claims(
    run: Run, where: str, facts: list[dict[str, Any]], others: Mapping[str, Run] | None = None
) -> Iterator[Claim | None]:
    """Yield, for each fact about a loss, or about others of the run's series, what is untrue of it, or None."""
    named = {fact["name"]: fact for fact in facts}
    told = Told(run, named)
    of_prefix = {
        prefix: Told(others[named[f"{prefix}_first"]["series"]], _of_prefix(named, prefix))
        for prefix in PREFIXES
        if others and f"{prefix}_first" in named
    }
    for fact in facts:
        prefix, _, name = fact["name"].partition("_")
        if fact["name"] == "objective":
            expected = _objective(others or {})
            yield None if fact["value"] == expected else Untrue(where, f"objective = {fact['value']}", expected)
        elif prefix in of_prefix:
            recompute = SINCE[prefix] if name == "since" else FOLLOWED[name]
            yield _compared(where, fact, recompute(of_prefix[prefix]))
        elif fact["name"] in {"since_step", "fallen_after_step"} and of_prefix:
            yield _compared(where, fact, _risen_after(next(iter(of_prefix.values()))))
        else:
            yield _fact_claim(told, where, fact)


def _fact_claim(told: Told, where: str, fact: dict[str, Any]) -> Claim | None:
    name, value = fact["name"], fact["value"]
    if name == "mode":
        return None if value == "TRAIN" else Untrue(where, f"mode = {value}", "the log has the mode TRAIN alone")
    if name not in FACTS:
        return Untrue(where, name, UNCHECKED)
    return _compared(where, fact, FACTS[name](told))


def _compared(where: str, fact: dict[str, Any], truth: Truth) -> Claim | None:
    name, value = fact["name"], fact["value"]
    least, most = truth
    return None if least <= float(value) <= most else Untrue(where, f"{name} = {value}", f"it is {least} to {most}")


def write_random_run(seed: int, root: Path) -> Path:
    """Write the log of the run of a seed; return its folder."""
    rng = np.random.default_rng([seed, 9])
    count, start = int(rng.integers(80, 1_500)), float(rng.uniform(0.5, 8.0))
    kind, at = KINDS[seed % len(KINDS)], np.linspace(0.0, 1.0, count)
    noise = float(rng.choice([0.0, 0.01, 0.05])) * start * rng.standard_normal(count)
    losses = start * (0.2 + 0.8 * np.exp(-5.0 * at)) + noise
    since = at > rng.uniform(0.3, 0.7)
    if kind in {"flat", "rises"}:
        losses = start + noise + (0.3 * start * at if kind == "rises" else 0.0)
    elif kind in {"blows up", "steps back"}:
        losses[since] += start * (float(rng.uniform(5.0, 30.0)) if kind == "blows up" else 1.5)
    elif kind.startswith("breaks"):
        until = since & (at < 0.8) if kind.endswith("while") else since
        losses[until] = rng.choice([math.nan, math.inf])
    elif kind == "never finite":
        losses[:] = math.nan
    elif kind == "zero":
        losses[since] = 0.0
    columns = {**({} if kind == "generator lost" else {"loss": losses}), **_measured(kind, at, since, rng)}
    folder = root / f"training-{seed}"
    folder.mkdir(parents=True)
    every = int(rng.choice([1, 1, 10, 50]))
    rows = [
        f"{every * place},{','.join(map(repr, row))}" for place, row in enumerate(zip(*_lists(columns), strict=True))
    ]
    (folder / LOG).write_text("\n".join([f"step,{','.join(columns)}", *rows]) + "\n")
    return folder


def _lists(columns: Mapping[str, Floats]) -> list[list[float]]:
    return [column.tolist() for column in columns.values()]


def _measured(kind: str, at: Floats, since: Flags, rng: np.random.Generator) -> dict[str, Floats]:
    """Return what a run of a policy, or of adversaries, logs beside its loss."""
    if kind == "generator lost":
        generator, discriminator = np.full(at.size, 0.7), np.full(at.size, 0.6)
        generator[since], discriminator[since] = rng.uniform(4.0, 9.0), rng.uniform(1e-5, 1e-3)
        return {"loss_generator": generator, "loss_discriminator": discriminator}
    if kind not in {"reward rises", "reward lost", "kl explodes", "entropy gone"}:
        return {}
    reward = (10.0 + 90.0 * at if kind.startswith("reward") else np.full(at.size, 10.0)) + rng.standard_normal(at.size)
    kl, entropy = 0.02 + 0.001 * rng.standard_normal(at.size), 1.4 - 0.4 * at
    if kind == "reward lost":
        reward[since] = 10.0 + rng.standard_normal(int(since.sum()))
    elif kind == "kl explodes":
        kl[since] = rng.uniform(5.0, 50.0)
    elif kind == "entropy gone":
        entropy[since] = rng.uniform(1e-4, 1e-2)
    return {"reward": reward, "kl": kl, "entropy": entropy}
