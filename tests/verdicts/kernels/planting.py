"""How faults are planted: operators made slow, changed, or put between others, for a share of the step."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.verdicts.kernels.machine import Job, Op
from tests.verdicts.kernels.models import Step

# Plants a fault that wastes a share of the step.
Plant = Callable[[Job, float], Job]


def waste(job: Job, share: float) -> float:
    """Return the microseconds a step that are a share of the step with them."""
    return job.step_us * share / (1 - share)


def flat(step: Sequence[Op]) -> list[Op]:
    return [each for op in step for each in (op, *flat(op.inside))]


def changed(step: Step, change: Callable[[Op], Op]) -> Step:
    return [
        replace(change(op), inside=tuple(changed(list(op.inside), change))) if op.inside else change(op) for op in step
    ]


def behind(job: Job, pattern: str, *ops: Op) -> Job:
    """Put operators behind the first one of a name."""

    def change(step: Step) -> Step:
        place = next(at for at, op in enumerate(step) if re.search(pattern, op.name)) + 1
        return [*step[:place], *ops, *step[place:]]

    return job.every(change)


def amid(job: Job, count: int, *ops: Op) -> Job:
    """Put operators at so many places of the step, spread evenly."""

    def change(step: Step) -> Step:
        places = {round(len(step) * (number + 0.5) / count) for number in range(count)}
        return [each for at, op in enumerate(step) for each in ((*ops, op) if at in places else (op,))]

    return job.every(change)


def only(job: Job, chosen: Callable[[int], bool], change: Callable[[Step], Step]) -> Job:
    """Change some steps."""
    ranks = tuple([change([*step]) if chosen(at) else step for at, step in enumerate(steps)] for steps in job.ranks)
    return replace(job, ranks=ranks)


# A slow operator takes so many times what it should at least.
LEAST_FACTOR = 2.6


def slowed(job: Job, pattern: str, wasted: float, change: Callable[[Op], Op] = lambda op: op) -> Job:
    """Make as few operators of a name slow as waste so much with at least the least factor."""
    found = [op for op in flat(job.ranks[0][0]) if re.search(pattern, op.name)]
    chosen, time = 0, 0.0
    for op in found:
        if chosen and wasted < (time + op.us) * (LEAST_FACTOR - 1):
            break
        chosen, time = chosen + 1, time + op.us
    factor = 1 + wasted / time

    def of_step(step: Step) -> Step:
        left = [chosen]

        def of(op: Op) -> Op:
            if not left[0] or not re.search(pattern, op.name):
                return op
            left[0] -= 1
            return change(replace(op, works=tuple(replace(each, us=each.us * factor) for each in op.works)))

        return changed(step, of)

    return job.every(of_step)


def slow(pattern: str, kernel: str = "") -> Plant:
    def renamed(op: Op) -> Op:
        return replace(op, works=tuple(replace(each, name=kernel) for each in op.works)) if kernel else op

    return lambda job, share: slowed(job, pattern, waste(job, share), renamed)


def finish(call: str = "cudaStreamSynchronize") -> Op:
    return Op("aten::item", inside=(Op("aten::_local_scalar_dense", sync=call, host=3),), host=2)


def replaced(job: Job, pattern: str, share: float, factor: float, change: Callable[[Op], Op]) -> Job:
    """Change as many operators, each slower by a factor, as waste the share."""
    wasted = waste(job, share)

    def of_step(step: Step) -> Step:
        left = [wasted]

        def of(op: Op) -> Op:
            if left[0] <= 0 or not re.search(pattern, op.name):
                return op
            left[0] -= op.us * (factor - 1)
            return change(replace(op, works=tuple(replace(work, us=work.us * factor) for work in op.works)))

        return changed(step, of)

    return job.every(of_step)
