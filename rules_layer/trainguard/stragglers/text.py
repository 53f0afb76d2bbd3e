"""Sentences about stragglers, from the facts of their verdict."""

from collections.abc import Callable

import msgspec

from trainguard.core.units import counted, listed, show_duration, show_money, show_share
from trainguard.stragglers.causes import CauseKind, StragglerCause
from trainguard.stragglers.verdict import SLOW_FROM, Price, StragglerVerdict

_ADVICE = {
    CauseKind.RANKS: "Look at the GPU, the CPU and the data of {ranks}: clocks, temperature, power, other processes. "
    "Exchange it if it stays slow.",
    CauseKind.HOST: "Look at the machine {host}: clocks, temperature, power, other processes. Start without it.",
    CauseKind.COPY: "Look at the data of data-parallel rank {dp_rank}: all its stages are slow, as with longer "
    "sequences. Share the data out evenly.",
    CauseKind.STAGE: "Move layers from stage {stage} to others, or its loss or embedding to a stage of fewer layers.",
    CauseKind.SEQUENCES: "Share sequences out so that micro-batches take equally long: sort or pack them by length.",
    CauseKind.TRANSFERS: "Look at the network of {operation}: link errors, congestion, the ranks' places in it.",
}


def with_words(verdict: StragglerVerdict) -> StragglerVerdict:
    """Return the verdict with its sentences."""
    return msgspec.structs.replace(verdict, reason=_reason(verdict), advice=_advice(verdict))


def said_cause(cause: StragglerCause, price: Price | None = None) -> str:
    """Return what a cause is and costs."""
    money = f", {_money(price, cause.saves)}" if price is not None else ""
    verb = "cost" if cause.kind is CauseKind.SEQUENCES or len(cause.ranks) > 1 else "costs"
    return f"{_WHO[cause.kind](cause)} and {verb} {show_share(max(cause.saves, 0.0))} of the job{money}."


def _slow_ranks(cause: StragglerCause) -> str:
    ranks = _ranks(cause.ranks).capitalize()
    verb, whose = ("takes", "its") if len(cause.ranks) == 1 else ("take up to", "their")
    when = f" in {show_share(cause.in_steps)} of the steps" if cause.in_steps is not None else ""
    return f"{ranks} {verb} {_times(cause)} as long as {whose} peers{when}{_in_few_steps(cause)}"


def _in_few_steps(cause: StragglerCause) -> str:
    return ", in so few steps that their batches may be long," if cause.unsure else ""


def _slow_host(cause: StragglerCause) -> str:
    return f"The ranks of machine {cause.host} take up to {_times(cause)} as long as their peers{_in_few_steps(cause)}"


def _slow_copy(cause: StragglerCause) -> str:
    return f"Data-parallel rank {cause.dp_rank} takes up to {_times(cause)} as long as its peers, in all its stages"


def _slow_stage(cause: StragglerCause) -> str:
    what = f"all on machine {cause.host}" if cause.host else "one rank"
    alone = f", {what} that may be slow itself," if cause.unsure else ""
    return f"Stage {cause.stage}{alone} takes {_times(cause)} as long as the mean stage"


def _long_sequences(_: StragglerCause) -> str:
    return "Sequence lengths differ: forward and backward passes of the same micro-batches take longer together,"


def _slow_transfers(cause: StragglerCause) -> str:
    return f"Transfers, most of all {cause.operation}, take longer than at their median"


_WHO: dict[CauseKind, Callable[[StragglerCause], str]] = {
    CauseKind.RANKS: _slow_ranks,
    CauseKind.HOST: _slow_host,
    CauseKind.COPY: _slow_copy,
    CauseKind.STAGE: _slow_stage,
    CauseKind.SEQUENCES: _long_sequences,
    CauseKind.TRANSFERS: _slow_transfers,
}


def _reason(verdict: StragglerVerdict) -> str:
    if verdict.causes:
        said = [said_cause(verdict.causes[0], verdict.price)]
    else:
        lost = show_share(max(1 - 1 / verdict.slowdown, 0.0))
        begin = "Nothing is slow" if verdict.slowdown < SLOW_FROM else "No single cause explains most of what is lost"
        said = [f"{begin}: if all work were even, a step would take {lost} less time."]
    if verdict.confidence == "low":
        said.append(_doubt(verdict))
    return " ".join(said)


def _doubt(verdict: StragglerVerdict) -> str:
    if verdict.steps_left_out:
        of = counted(verdict.steps + verdict.steps_left_out, "step")
        return f"Low confidence: {verdict.steps_left_out:,} of {of} could not be replayed."
    if verdict.causes and verdict.causes[0].unsure:
        return "Low confidence: the times alone do not tell these apart."
    return f"Low confidence: the operations explain {show_share(1 - abs(verdict.left_out))} of the recorded step."


def _advice(verdict: StragglerVerdict) -> str:
    if not verdict.causes:
        return ""
    first = verdict.causes[0]
    return _ADVICE[first.kind].format(
        ranks=_ranks(first.ranks),
        host=first.host,
        dp_rank=first.dp_rank,
        stage=first.stage,
        operation=first.operation,
    )


def _times(cause: StragglerCause) -> str:
    return f"{cause.times or 1.0:.2f} times"


def _ranks(ranks: list[int]) -> str:
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {listed([str(rank) for rank in ranks])}"


def _money(price: Price, share: float) -> str:
    lost = show_money(price.spent * max(share, 0.0), price.currency)
    return f"{lost} in {show_duration(price.hours * 3_600)}" if price.hours else f"{lost} an hour"
