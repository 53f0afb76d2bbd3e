"""GPUs that nodes show, beside those that an instance of the job's type has: what is paid for is the whole instance."""

from collections import defaultdict

from trainguard.report.evaluated_job import EvaluatedJob
from trainguard.rules.units import counted, listed


def gpus_of_type(judged: EvaluatedJob) -> int | None:
    """Return how many GPUs an instance of the job's type has; None where the type or its GPUs are not known."""
    if judged.job.instance_type is None:
        return None
    row = judged.account.table.row(judged.job.instance_type)
    return None if row is None or row.accelerators is None else row.accelerators.gpus


def gpu_remarks(judged: EvaluatedJob) -> list[str]:
    """Say, in one sentence, which nodes show another number of GPUs than their type has; empty where none does."""
    expected = gpus_of_type(judged)
    if expected is None:
        return []
    others: defaultdict[int, list[str]] = defaultdict(list)
    for node in judged.system_nodes:
        shown = len(judged.profiler.system[node].state.gpu_names)
        if shown != expected:
            others[shown].append(node)
    if not others:
        return []
    parts = [
        f"{listed(nodes)} {'shows' if len(nodes) == 1 else 'show'} {_gpus(shown)}"
        for shown, nodes in sorted(others.items())
    ]
    has = f"An instance of {judged.job.instance_type} has {_gpus(expected)}"
    return [f"{has}, and in the profile {', '.join(parts)}: the whole instance is what was paid for."]


def _gpus(count: int) -> str:
    return counted(count, "GPU") if count else "no GPU"
