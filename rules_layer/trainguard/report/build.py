"""A job's report as a typed document: from its items alone, or with time lines from its profile read again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from trainguard.engine.diagnosis.text import counted_rules, sentences_of
from trainguard.engine.family import Families
from trainguard.engine.plan import RulePlan
from trainguard.families.installed import FAMILIES
from trainguard.pricing.cost import Bill
from trainguard.records import JobRecord, NodeRecord
from trainguard.report.annotations import marks, unmarked
from trainguard.report.captures.build import kernel_report
from trainguard.report.coverage import coverage
from trainguard.report.document import FindingEntry, Report, Scope, Spending, Verdict
from trainguard.report.evaluated_job import EvaluatedJob, evaluate_job
from trainguard.report.finding_entries import finding_entry
from trainguard.report.gpu_counts import gpu_remarks
from trainguard.report.job_summary import job_summary
from trainguard.report.managed import managed_files
from trainguard.report.not_collected import not_collected
from trainguard.report.rule_entries import rule_entries
from trainguard.report.training.build import training_report
from trainguard.report.training.digest import TrainingDigest
from trainguard.report.training.fires import RuleFires, rule_fires
from trainguard.rules.units import counted
from trainguard.timeline.build import build_timelines
from trainguard.timeline.digest import NodeDigest
from trainguard.timeline.series import Timelines
from trainguard.timestamps import iso_time

MOST_NODES = 128
"""The ledger is given node by node of so many nodes."""


@dataclass(frozen=True, slots=True)
class BuiltReport:
    """A report, and beside it the five-field files of the managed service, by their names.

    ``fires`` holds by rule over training where it fired.
    """

    report: Report
    managed: Mapping[str, bytes]
    fires: Mapping[str, RuleFires] = field(default_factory=dict)

    def with_training(self, digest: TrainingDigest) -> "BuiltReport":
        """Return the report, of scope ``full``, with what the job's tensors and scalars show."""
        training = training_report(digest, self.fires)
        return replace(self, report=msgspec.structs.replace(self.report, scope="full", training=training))

    def without_kernel_files(self) -> "BuiltReport":
        """Return the report of a job whose ``kernels.html`` and ``kernels.json`` nobody wrote beside it."""
        if self.report.kernels is None:
            return self
        kernels = msgspec.structs.replace(self.report.kernels, page=None, document=None)
        return replace(self, report=msgspec.structs.replace(self.report, kernels=kernels))


def build_report(
    job: JobRecord,
    records: Sequence[NodeRecord],
    *,
    now: float,
    plan: RulePlan | None = None,
    families: Families = FAMILIES,
    digests: Sequence[NodeDigest] = (),
    missing: Sequence[str] = (),
) -> BuiltReport:
    """Build the report of a job.

    Parameters
    ----------
    job : JobRecord
    records : sequence of NodeRecord
        All items of the job.
    now : float
        Epoch seconds at which the report is made.
    plan : RulePlan, optional
        The rules with which the items were made; by default the job's own.
    families : Families
        Those of the deployment.
    digests : sequence of NodeDigest
        The profile read again; the report is of scope ``full`` where there are some.
    missing : sequence of str
        Sentences on what of the profile could not be read for them.

    Raises
    ------
    StateCodecError
        When an item cannot be decoded.
    TimelinePartError
        When the digests are not of one axis.
    """
    judged = evaluate_job(job, families.plan(job) if plan is None else plan, records, families)
    scope: Scope = "full" if digests else "state"
    verdict = _verdict(judged)
    findings = [finding_entry(finding, judged) for finding in judged.findings]
    report = Report(
        generated_at=iso_time(now),
        scope=scope,
        final=judged.final,
        healthy=verdict.level == "healthy",
        verdict=verdict,
        summary=f"{verdict.health} {counted_rules(judged, judged.diagnosis.judged)}",
        fired=[each.rule for each in judged.verdicts if each.history.times_fired],
        findings=findings,
        cost=_spending(judged),
        ledger=list(judged.diagnosis.ledger),
        ledger_by_node=judged.ledger.by_node()[:MOST_NODES],
        goodput=judged.ledger.goodput,
        job=job_summary(judged),
        coverage=coverage(judged),
        not_collected=not_collected(judged, scope, missing),
        rules=rule_entries(judged),
        kernels=kernel_report(judged),
        timelines=_timelines(judged, findings, digests, missing) if digests else None,
    )
    return BuiltReport(report, managed_files(judged.verdicts, judged.plan), rule_fires(judged))


def _verdict(judged: EvaluatedJob) -> Verdict:
    found, words = judged.diagnosis, sentences_of(judged, judged.diagnosis)
    bill = judged.account.bill()
    share = None if not found.judged.profiled else found.lost_share
    return Verdict(
        health=words.health,
        change=words.change,
        cost=words.cost,
        level=found.level,
        rule=None if found.root is None else found.root.rule,
        wasted_share=share,
        lost=round(share * bill.spent, 2) if share is not None and isinstance(bill, Bill) else None,
        causes=[each.rule for each in found.causes],
        judged=list(found.judged.judged),
        not_judged=list(found.judged.vetoes),
    )


def _timelines(
    judged: EvaluatedJob, findings: Sequence[FindingEntry], digests: Sequence[NodeDigest], missing: Sequence[str]
) -> Timelines:
    built = build_timelines(digests, marks=marks(findings), started_at=judged.started_at, ended_at=judged.ended_at)
    return msgspec.structs.replace(built, left_out=[*missing, *unmarked(findings), *built.left_out])


def _spending(judged: EvaluatedJob) -> Spending:
    """Say what the job has cost so far, or in a note why that is not known, and where its GPUs are others than paid."""
    bill = judged.account.bill()
    remarks = gpu_remarks(judged)
    if not isinstance(bill, Bill):
        hours = "" if bill.instance_hours is None else f" {bill.instance_hours:,.2f} instance hours were paid for."
        note = " ".join([f"No cost: {bill.why}.{hours}", *remarks])
        return Spending(spent=None, currency=None, note=note, instance_hours=_rounded(bill.instance_hours))
    hourly = f"{bill.currency} {bill.hourly:g} an hour"
    note = f"{counted(bill.nodes, 'node')} for {bill.hours:.2f} h at {hourly} ({bill.origin})."
    return Spending(
        spent=round(bill.spent, 2),
        currency=bill.currency,
        note=" ".join([note, *remarks]),
        instance_hours=_rounded(bill.instance_hours),
    )


def _rounded(hours: float | None) -> float | None:
    return None if hours is None else round(hours, 4)
