"""The third sentence of a report: what it costs to leave things as they are."""

from dataclasses import dataclass

from trainguard.engine.verdicts.findings import RankedFinding
from trainguard.pricing.cost import Bill, Unpriced
from trainguard.report.causes import Charge
from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.report.evaluation_gaps import Judged
from trainguard.report.facts import low_use
from trainguard.report.unexplained import unexplained
from trainguard.rules.registry import spec_of
from trainguard.rules.spec import Loss
from trainguard.rules.units import listed, show_money, show_percent, show_share

DAY_H = 24.0
NEXT_TIME = "a repeat of this job as it is wastes as much again"


@dataclass(frozen=True, slots=True)
class _Waste:
    """``share``, 0 to 1, of the nodes' paid time, in words and in money; ``gpus`` if all of them have GPUs."""

    share: float
    bill: Bill | Unpriced
    gpus: bool

    @property
    def amount(self) -> str:
        """For example ``68 % of the GPU time``."""
        return f"{show_share(self.share)} of the {'GPU time' if self.gpus else 'paid time'}"

    def money(self, ended: bool) -> str:
        """For example ``USD 41.20 of the USD 60.58 spent so far``."""
        if isinstance(self.bill, Unpriced):
            return f"in money that is not known, because {self.bill.why}{self._hours(self.bill)}"
        lost, spent = (show_money(each, self.bill.currency) for each in (self.share * self.bill.spent, self.bill.spent))
        return f"{lost} of the {spent} spent{'' if ended else ' so far'}"

    def _hours(self, bill: Unpriced) -> str:
        """For example ``; 4.10 of 6.00 instance hours``; empty where they are not known."""
        if bill.instance_hours is None:
            return ""
        return f"; {self.share * bill.instance_hours:,.2f} of {bill.instance_hours:,.2f} instance hours"

    def rate(self, share: float, how_long: str) -> str:
        """Say what a day and an hour cost from now on; empty where no price is known."""
        if isinstance(self.bill, Unpriced):
            return ""
        hourly, currency = share * self.bill.hourly * self.bill.nodes, self.bill.currency
        return f"{show_money(DAY_H * hourly, currency)} a day ({show_money(hourly, currency)} an hour) {how_long}"


def cost_sentence(judged: EvaluatedJob, root: RankedFinding | None, charge: Charge | None, rules: Judged) -> str:
    """Say what leaving things as they are costs.

    Parameters
    ----------
    judged : EvaluatedJob
    root : RankedFinding or None
        The thing to change.
    charge : Charge or None
        What it and the others have cost; None for a risk.
    rules : Judged
        What became of the rules.
    """
    bill = judged.account.bill()
    if root is None:
        return _without_finding(bill, judged, rules)
    if charge is None and not judged.profiled:
        return f"It is a risk; without a profile TrainGuard cannot say what it costs; {_spent(bill, judged)}."
    if charge is None:
        nothing = "It cost nothing" if judged.ended else "Leaving it has cost nothing yet"
        return f"{nothing} that the profile shows, but it is a risk; {_spent(bill, judged)}."
    return _of_waste(_Waste(charge.share, bill, _all_have_gpus(judged)), charge, judged, root)


def _of_waste(waste: _Waste, charge: Charge, judged: EvaluatedJob, root: RankedFinding) -> str:
    several = len(charge.rules) > 1
    who = f"{listed(charge.rules)} together" if several else "It"
    if judged.ended:
        return f"{who} cost {waste.amount}: {waste.money(ended=True)}; {NEXT_TIME}."
    so_far = f"{who} {'have' if several else 'has'} cost {waste.amount}: {waste.money(ended=False)}"
    if not root.ongoing:
        return f"{so_far}; {'they are over and cost' if several else 'it is over and costs'} no more."
    loss = _loss_from_now(charge.own, judged, root)
    if loss is None:
        return f"{so_far}; {NEXT_TIME}."
    rate = waste.rate(loss.share, loss.until)
    if several:
        return f"{so_far}{f'; leaving {root.rule} costs {rate}' if rate else ''}."
    left = f"{waste.amount}: {waste.money(ended=False)}"
    return f"Leaving it costs {left}{f', and {rate}' if rate else ''}."


def _loss_from_now(own: float, judged: EvaluatedJob, root: RankedFinding) -> Loss | None:
    """Return what a finding wastes from now on: as its rule says, else what it has wasted so far; None for nothing."""
    verdict, said = judged.verdict_of(root.rule), spec_of(root.rule).loss_from_now
    return Loss(own, "at this rate") if verdict is None or said is None else said(verdict.result)


def _all_have_gpus(judged: EvaluatedJob) -> bool:
    names = [judged.profiler.system[node].state.gpu_names for node in judged.system_nodes]
    return bool(names) and all(names)


def _without_finding(bill: Bill | Unpriced, judged: EvaluatedJob, rules: Judged) -> str:
    spent, left = _spent(bill, judged), unexplained(judged)
    if rules.judged and not judged.profiled:
        return f"Without a profile TrainGuard cannot say what was wasted; {spent}."
    if not rules.judged:
        return f"The waste is unknown; {spent}."
    if left is not None:
        cost = "" if left.lost is None else f" ({left.lost})"
        return f"Time for which no rule has a reason is {show_share(left.share)} of the paid time{cost}; {spent}."
    if rules.complete:
        return f"Nothing that was found costs anything; {spent}."
    use = low_use(judged) if rules.blind_to_gpus and isinstance(bill, Bill) else None
    idle = "" if use is None else f", with GPUs that were {show_percent(use)} busy"
    return f"Nothing that was found costs anything, but the evaluation is incomplete; {spent}{idle}."


def _spent(bill: Bill | Unpriced, judged: EvaluatedJob) -> str:
    if isinstance(bill, Unpriced):
        hours = "" if bill.instance_hours is None else f" on {bill.instance_hours:,.2f} instance hours"
        return f"what was spent{hours} is not known, because {bill.why}"
    return f"{show_money(bill.spent, bill.currency)} {'was spent' if judged.ended else 'has been spent so far'}"
