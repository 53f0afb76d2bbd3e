"""How the fire state machine stops what a job outside SageMaker runs on: a job of AWS Batch, or instances of EC2.

The states stand between the record of the decision and that of the outcome, as those of a training job do. Where no
kind of resources may be stopped there are none.
"""

from collections.abc import Sequence

from infra.constructs.states import ERROR_TEXT, State, keeping, task

WHAT = "WhatToStop"
_CALLS = {"batch-job": "TerminateBatchJob", "instance": "StopInstances"}


def resource_states(stoppable: Sequence[str], *, otherwise: str, following: str) -> State:
    """Return the states that stop resources of these kinds, and go to ``otherwise`` for others.

    They start with ``WhatToStop``.
    """
    if not stoppable:
        return {}
    choices = [{"Condition": f"{{% $decision.kind = '{kind}' %}}", "Next": _CALLS[kind]} for kind in stoppable]
    makers = {"batch-job": _batch_states, "instance": _instance_states}
    states: State = {WHAT: {"Type": "Choice", "Choices": choices, "Default": otherwise}}
    for kind in stoppable:
        states |= makers[kind](following)
    return states


def calling(call: State) -> State:
    """Return the task of a call that stops something, with its outcome in the variable ``stop``."""
    failed = {"made": False, "error": f"{{% {ERROR_TEXT} %}}"}
    return keeping("stop", call, answer={"made": True, "error": None}, otherwise=failed)


def looking(look: State, *, was_stopped: str) -> State:
    """Return the task that looks after an error whether all was stopped, for the answer of a call can be lost."""
    unknown = f"$stop.error & '; and whether it was stopped could not be asked: ' & {ERROR_TEXT}"
    seen = f"{{% {was_stopped} ? {{'made': true, 'error': null}} : $stop %}}"
    look = keeping("stop", look, answer=seen, otherwise={"made": False, "error": f"{{% {unknown} %}}"})
    look["Assign"]["stopFault"] = f"{{% {was_stopped} ? '' : $stopFault %}}"
    return look


def _batch_states(following: str) -> State:
    call = task(
        "TerminateBatchJob",
        resource="aws-sdk:batch:terminateJob",
        arguments={"JobId": "{% $decision.resources[0] %}", "Reason": "{% 'TrainGuard: ' & $fire.rule & ' fired' %}"},
        fault="stopFault",
        following=following,
        failed="LookAtBatchJob",
    )
    look = task(
        "LookAtBatchJob",
        resource="aws-sdk:batch:describeJobs",
        arguments={"Jobs": ["{% $decision.resources[0] %}"]},
        fault="lookFault",
        following=following,
    )
    was_stopped = "$states.result.Jobs[0].IsTerminated = true"
    return {"TerminateBatchJob": calling(call), "LookAtBatchJob": looking(look, was_stopped=was_stopped)}


def _instance_states(following: str) -> State:
    named = {"InstanceIds": "{% $decision.resources %}"}
    call = task(
        "StopInstances",
        resource="aws-sdk:ec2:stopInstances",
        arguments=named,
        fault="stopFault",
        following=following,
        failed="LookAtInstances",
    )
    look = task(
        "LookAtInstances",
        resource="aws-sdk:ec2:describeInstances",
        arguments=named,
        fault="lookFault",
        following=following,
    )
    stopped = "$states.result.Reservations.Instances[State.Name in ['stopping', 'stopped']]"
    was_stopped = f"$count({stopped}) = $count($decision.resources)"
    return {"StopInstances": calling(call), "LookAtInstances": looking(look, was_stopped=was_stopped)}
