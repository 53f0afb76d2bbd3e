"""'Least busy', 'busiest', 'first', 'only', 'all' and 'every' are held against the raw data."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from tests.claims.claim import Unknown, Untrue
from tests.claims.context import Context, Fact, Raw, mean_of, samples
from tests.claims.work import within

_WORDS = re.compile(
    r"\b(?:least|busiest|idlest|most|highest|lowest|longest|shortest|slowest|fastest|first|last|only|all|every|each|"
    r"no other|none|any)\b",
    re.IGNORECASE,
)

# Phrases with such a word that compare nothing.
_PLAIN = (
    r"at least",
    r"at most",
    r"most of (?:its|their|the) time",
    r"all the same",
    r"after all",
    r"first, then",
    r"Look at [^.;]* first",
    r"stack traces of all ranks \(py-spy dump\) first",
    r"from its last checkpoint",
    r"each of the _? ?\d* ?training processes",
    r"for each (?:GPU|core)",
    r"in each of",
    r"in each step of",
    r"every \d+ steps",
    r"W each",
    r"not at all",
    r"no samples any more",
    r"for anybody",
    r"last work",
    r"most important",
    r"any more",
    r"the first of which",
    r"one process a GPU",
    r"over the last [\d.]+ (?:s|min|h|points)",
    r"in every [\d.]+ (?:s|min|h)",
    r"for [\d.]+ (?:s|min|h) every [\d.]+ (?:s|min|h)",
    r"the (?:busiest|idlest) 5 %",
    r"its last [\d,]+ (?:samples|points|minutes?)",
    r"of the last [\d,]+ points",
    r"of its last [\d,]+ minutes?",
    r"the other [\d,]+ nodes together",
    r"first batches",
    r"what comes before the first step",
    r"over all samples",
    r"since its first (?:sample|work)",
    r"all samples",
    r"over the last window",
    r"all windows but the last two",
    r"last [\d,]+ points",
    r"any job",
    r"only spins",
    r"pauses left out",
    r"No recorded event takes a clearly larger share of the slow steps than of the others",
    r"ends? only",
    r"check that first",
    r"for [\d.]+ (?:s|min|h) in all",
)


def superlative_claims(where: str, text: str, finding: dict[str, Any], raw: Raw) -> Iterator[Untrue | Unknown | None]:
    """Yield what is untrue of the superlatives of a text, and those that nothing here can check."""
    context = Context(raw, finding, {})
    rest = text
    for pattern, check in _CHECKS:
        for match in re.finditer(pattern, rest, re.IGNORECASE):
            why = check(context, match)
            yield None if why is None else Untrue(where, match[0], why)
        rest = re.sub(pattern, " ", rest, flags=re.IGNORECASE)
    for pattern in sorted(_PLAIN, key=len, reverse=True):
        rest = re.sub(pattern, " ", rest, flags=re.IGNORECASE)
    for match in _WORDS.finditer(rest):
        yield Unknown(where, f"'{match[0]}' in: {text}")


Check = Callable[[Context, re.Match[str]], str | None]


def _least_busy(context: Context, match: re.Match[str]) -> str | None:
    """Hold that no other used GPU of the node is less busy in the fact's time."""
    fact = context.first("mean_utilization")
    if fact is None:
        return "no fact says how busy it was"
    node = context.node(fact)
    means = {gpu: mean_of(samples(context, fact, gpus=[gpu])) for gpu in node.used_gpus or node.gpus}
    lowest = min(means, key=means.__getitem__)
    named = means.get(str(fact.get("device")))
    return None if named is not None and named <= means[lowest] + 0.1 else f"{lowest} was, at {means[lowest]:.1f} %"


def _busiest(context: Context, match: re.Match[str]) -> str | None:
    """Hold that no other side is busier at work than the one that is called the busiest."""
    names = ("busiest_utilization_at_work", "busiest_utilization", "highest_mean_utilization")
    said = [fact for name in names if (fact := context.first(name)) is not None]
    reasons = [_is_busiest(context, fact) for fact in said] or ["no fact says how busy it was"]
    return None if None in reasons else reasons[0]


def _is_busiest(context: Context, fact: Fact) -> str | None:
    """Hold that no other side is busier: at work, or over all samples, whichever the fact is of."""
    at_work = fact["name"].endswith("_at_work")
    means = {}
    for node in context.raw.job.nodes.values():
        sides = [[gpu] for gpu in node.gpus] if fact.get("device") else [node.gpus]
        for gpus in sides:
            if not node.gpus or (fact.get("device") and node.name != fact["node"]):
                continue
            if at_work:
                values = context.raw.kept(node, gpus, fact["from"], fact["to"])
            else:
                values = samples(context, {**fact, "node": node.name}, gpus=gpus)
            if values.size:
                means[node.name, gpus[0] if fact.get("device") else None] = mean_of(values)
    named = means.get((fact["node"], fact.get("device")))
    highest = max(means, key=means.__getitem__)
    if named is not None and named >= means[highest] - 0.1:
        return None
    return f"{'/'.join(filter(None, highest))} was, at {means[highest]:.1f} %"


def _nobody_busier(context: Context, match: re.Match[str]) -> str | None:
    return _busiest(context, match)


def _no_gpu_worked(context: Context, match: re.Match[str]) -> str | None:
    """Hold that no GPU was active in most samples of the finding's idle time."""
    fact = next(
        (each for name in ("idle_time", "standstill_time", "idle_share") if (each := context.first(name))),
        None,
    )
    if fact is None:
        return "no fact says when"
    names = [fact["node"]] if fact.get("node") else [name for name, node in context.raw.job.nodes.items() if node.gpus]
    for name in names:
        points = context.raw.job.nodes[name].points
        time = within(points.times, fact.get("from"), fact.get("to")) & points.seen
        share = float(points.active[time].mean()) if time.any() else 0.0
        allowed = 1.0 - float(fact["value"]) + 1e-3 if fact["name"] == "idle_share" else 0.1
        if fact["name"].endswith("idle_time") and share > allowed:
            return f"GPUs of {name} were active in {100.0 * share:.1f} % of its samples"
    return None


def _p95_says_so(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the fact: its recomputation holds that no other GPU's 95th percentile is higher."""
    return None if context.first("p95_utilization_at_work") else "no fact says so"


def _slowest_core(context: Context, match: re.Match[str]) -> str | None:
    return None if context.first("highest_io_wait") else "no fact says so"


def _first_rank(context: Context, match: re.Match[str]) -> str | None:
    return (
        None if any(context.first(name) for name in ("rank_behind", "silent_node", "idle_gpu")) else "no fact names it"
    )


_PLACES = {
    "in waits for data": "data_wait",
    "in the forward pass": "forward",
    "in the backward pass": "backward",
    "in the optimizer": "optimizer",
    "outside of passes": "other",
}


def _mostly_in(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the fact: its recomputation holds that waits, or a part of the step, are half of it or more."""
    late_in = context.first("late_in")
    place = _PLACES[match[1]]
    says_so = late_in["value"] == place if late_in else place == "data_wait" and context.first("longer_by_waits")
    return None if says_so else "no fact says so"


def _every_rank(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the facts: which node's ranks are all slow, and which rank is the slowest."""
    return None if context.first("slow_node") and context.first("rank") else "no fact says so"


def _has_risen(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the fact: its recomputation holds that the series did rise so far."""
    return None if context.first("increase") else "no fact says by how much"


def _is_silent(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the fact: its recomputation is of the minutes in which others have samples, and this GPU none."""
    return None if context.first("silent_minutes") else "no fact says so"


def _first_step(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the fact: its recomputation holds that no step began earlier."""
    return None if context.first("time_to_first_step") else "no fact says so"


def _highest_mean_of_windows(context: Context, match: re.Match[str]) -> str | None:
    """Leave it to the fact: its recomputation is over all windows but the last two."""
    return None if context.first("highest_mean_activity") else "no fact says so"


# What is said, and how it is held against the data: the first that fits has it.
_CHECKS: tuple[tuple[str, Check], ...] = (
    (r"the least busy GPU", _least_busy),
    (r"behind the busiest", _busiest),
    (r"the busiest had", _busiest),
    (r"even the busiest GPU", _p95_says_so),
    (r", \S+ the most with", _busiest),
    (r"no GPU of \S+ was busier", _nobody_busier),
    (r"every GPU of \S+ (?:was|has been) idle", _no_gpu_worked),
    (r"no GPU of \S+ was (?:used|active)", _no_gpu_worked),
    (r"the first of them", _slowest_core),
    (r"and all [\d.]+ %", _slowest_core),
    (r"Look at [^.;,]* first", _first_rank),
    (r"and it ha[sd] none", _is_silent),
    (r"the first step began", _first_step),
    (rf"most of it ({'|'.join(_PLACES)})", _mostly_in),
    (r"every rank of \S+ (?:was|is) slow, most of all", _every_rank),
    (r"the highest mean of all windows but the last two", _highest_mean_of_windows),
    (r"above the highest until", _has_risen),
)
