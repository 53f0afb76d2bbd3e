"""The words of rules over captures: where and how much, around those of `trainguard.kernels.findings.text`."""

from enum import StrEnum

from trainguard.kernels.findings.text import KernelKind, words
from trainguard.rules.units import counted
from trainguard.rules.words import FactSheet, Words
from trainguard.statuses import Status


class CaptureKind(StrEnum):
    """What is said of a rule that has found nothing; what it has found is a `KernelKind`."""

    NO_CAPTURE = "no_capture"
    HOLDS_NOT = "holds_not"
    UNREAD = "unread"
    CUT_OFF = "cut_off"
    TOO_FEW_STEPS = "too_few_steps"


_CLAUSES = {
    KernelKind.GPU_BUSY_LOW: "the GPU was busy for too little of the time",
    KernelKind.GPU_GAP: "the GPU was idle at a stretch",
    KernelKind.LOADER_BOUND: "steps waited for the data loader",
    KernelKind.LAUNCH_BOUND: "the host launched kernels too slowly",
    KernelKind.SMALL_KERNEL_STORM: "kernels were too small and too many",
    KernelKind.SYNC_STALL: "synchronization held the host up",
    KernelKind.EXPOSED_COMMUNICATION: "communication was not hidden behind computation",
    KernelKind.MEMCPY_BOUND: "the GPU only copied memory for part of the time",
    KernelKind.PAGEABLE_COPY: "copies used pageable memory",
    KernelKind.DATA_PARALLEL: "GPUs were driven by one process",
    KernelKind.WITHOUT_NCCL: "gradients were sent by the host",
    KernelKind.TENSOR_CORES_IDLE: "tensor cores were not used",
    KernelKind.LOW_PRECISION_UNUSED: "most of the computation was in FP32",
    KernelKind.SM_UNDERFILLED: "kernels did not fill the GPU",
    KernelKind.SLOW_STEPS: "single steps were slow",
    KernelKind.GPU_MEMORY_FULL: "a GPU's memory was nearly full",
    KernelKind.LATE_RANK: "one rank came late into collectives",
    KernelKind.SLOW_RANK: "a rank computed more slowly than others",
}


def text(sheet: FactSheet) -> Words:
    """Say what the newest capture means for a rule."""
    if sheet.kind in set(CaptureKind):
        return Words(_SILENT[CaptureKind(sheet.kind)](sheet))
    summary, advice = words(sheet.kind, sheet.facts)
    if sheet.status is Status.OK:
        return Words(summary)
    if sheet.status is not Status.FIRED:
        return Words(_unsure(sheet) + summary)
    reason = ("In an earlier capture: " if sheet.past else "") + _where(sheet) + summary
    return Words(reason, advice + _explained(sheet), _CLAUSES.get(KernelKind(sheet.kind), ""))


def _unsure(sheet: FactSheet) -> str:
    why = "files that are cut off, too few steps" if sheet.get("cut_traces") else "too few steps"
    many = counted(int(sheet.number("unsure_ranks")), "rank")
    return f"On {many} with low confidence, from {why} or only the first or last one: "


def _where(sheet: FactSheet) -> str:
    affected = sheet.get("ranks_affected")
    if affected is None:
        return ""
    names = [str(fact.value) for fact in sheet.all("rank")]
    number = int(affected.value)
    if number == 1:
        return f"On {names[0]}: "
    named = ", ".join(names) + (", …" if number > len(names) else "")
    return f"On {number:,} of {int(sheet.number('ranks_read')):,} ranks ({named}), at worst: "


def _explained(sheet: FactSheet) -> str:
    gain, share = sheet.number("gain_per_step"), sheet.number("gain_share")
    if gain <= 0:
        return ""
    return f" It explains {100 * share:.1f} % of the time, {gain / 1e6:,.3f} ms a step."


def _holds_not(sheet: FactSheet) -> str:
    ranks = counted(int(sheet.number("ranks_judged")), "rank")
    return f"It does not hold on {ranks} of the newest capture.{_cut(sheet)}"


def _cut(sheet: FactSheet) -> str:
    """Say that a capture is judged in part."""
    cut = sheet.get("cut_traces")
    if cut is None:
        return ""
    number = int(cut.value)
    files = "1 trace ends" if number == 1 else f"{number:,} traces end"
    return f" It is judged in part: {files} early."


def _unread(sheet: FactSheet) -> str:
    traces = counted(int(sheet.number("traces")), "trace")
    why = f"{sheet.name('unread_trace')}: {sheet.name('unread_why')}"
    return f"None of {traces} of the newest capture could be read; {why}."


def _few(sheet: FactSheet) -> str:
    steps = sheet["steps"]
    traces = counted(int(sheet.number("traces")), "trace")
    return (
        f"The newest capture has no trace with a GPU's work in {steps.threshold:g} steps or more ({traces}, "
        f"{counted(int(steps.value), 'step')}). Profile 3 to 10 steps."
    )


_SILENT = {
    CaptureKind.NO_CAPTURE: lambda _: "No capture was judged yet.",
    CaptureKind.HOLDS_NOT: _holds_not,
    CaptureKind.UNREAD: _unread,
    CaptureKind.CUT_OFF: lambda sheet: f"The newest capture has no whole trace.{_cut(sheet)} Copy whole files.",
    CaptureKind.TOO_FEW_STEPS: _few,
}
