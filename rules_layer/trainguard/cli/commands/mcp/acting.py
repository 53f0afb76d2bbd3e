"""Brakes and stops as tools: only where the operator switched them on, and only for jobs whose tag allows them.

A brake goes the way of ``trainguard brake add``. A stop asks the stack's fire machine to decide on an open fire again:
`decide_stop` has the last word with all its guards, and records what it decides.
"""

import time
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from trainguard.aws.sagemaker import SageMakerTrainingJobs
from trainguard.aws.stepfunctions import StepFunctionsExecutions
from trainguard.cli.commands.mcp.session import McpSession
from trainguard.cli.commands.mcp.tools import Tool
from trainguard.cli.options import Where
from trainguard.cli.services.brakes import brake_store, caller, put_brake
from trainguard.cli.services.deployment import Deployment, connect, job_in_stack
from trainguard.core.brakes import Brake, Braked, new_brake
from trainguard.core.errors import RequestError
from trainguard.core.records import RuleRow, Status
from trainguard.core.text import one_line
from trainguard.engine.outbox import name_of_execution
from trainguard.engine.settings.tag_names import AGENT_TAG, STOP_ALLOWED, STOP_TAG
from trainguard.report.agents.foreign import foreign, rule_code
from trainguard.report.agents.verdict import Answer

MACHINE_OUTPUT = "FireStateMachineArn"

Job = Annotated[str, msgspec.Meta(min_length=1, max_length=63, description="The training job's name.")]
Hours = Annotated[float, msgspec.Meta(gt=0, le=24, description="How long it holds.")]
Why = Annotated[str, msgspec.Meta(min_length=1, max_length=120, description="The reason, for people.")]


def acting_tools(where: Where, *, brakes: bool, stops: bool) -> Sequence[Tool]:
    """Return the tools that the operator has switched on."""

    def brake(
        session: McpSession, *, job: Job, what: Literal["alerts", "evaluation", "stops"], hours: Hours, why: Why
    ) -> Answer:
        """Hold alerts, evaluation or stops of one job back for some hours; people can release it."""
        del session
        deployment, now = connect(where), time.time()
        _allowed(deployment, job, "brake")
        because, by = f"by an agent: {one_line(why)}", caller(deployment.clients)

        def make(identity: str) -> Brake:
            until = now + 3_600 * hours
            return new_brake(identity, Braked(what), by=by, why=because, now=now, job=job, rule=None, until=until)

        held, _ = put_brake(brake_store(deployment), make, now)
        return {"job": foreign(job), "brake": held.id, "holds_back": what, "hours": hours}

    def stop(session: McpSession, *, job: Job) -> Answer:
        """Ask the stack to decide on a stop of a job whose finding goes on; it refuses what no owner has allowed."""
        del session
        deployment = connect(where)
        tags = _allowed(deployment, job, "stop")
        if tags.get(STOP_TAG) != STOP_ALLOWED:
            raise RequestError(f"job {job!r} has no tag {STOP_TAG}={STOP_ALLOWED}", "Its owner sets it.")
        row = _open_fire(deployment, job)
        arn = deployment.output(MACHINE_OUTPUT)
        machine = StepFunctionsExecutions(client=deployment.clients.stepfunctions, state_machine_arn=arn)
        name = name_of_execution(f"{row.rule}-{row.fire_id}-{job}")
        fire = machine.find(name)
        if fire is None:
            raise RequestError(f"the fire of job {job!r} has no execution", "It is decided on already, or too old.")
        started = machine.start(name_of_execution(f"agent-{name}"), fire.payload)
        return {"job": foreign(job), "rule": rule_code(row.rule), "asked": True, "asked_before": not started}

    wanted = ((brake, brakes), (stop, stops))
    return [Tool(function, acts=True) for function, is_on in wanted if is_on]


def _allowed(deployment: Deployment, job: str, action: str) -> dict[str, str]:
    """Return the job's tags as SageMaker has them now; raises RequestError where they do not allow the action."""
    described = SageMakerTrainingJobs(client=lambda: deployment.clients.sagemaker).describe(job)
    tags = {} if described is None else dict(described.tags)
    if action not in tags.get(AGENT_TAG, "").split():
        raise RequestError(
            f"job {job!r} does not allow agents to {action}", f"Its owner sets the tag {AGENT_TAG} to {action!r}."
        )
    return tags


def _open_fire(deployment: Deployment, job: str) -> RuleRow:
    job_in_stack(job, deployment.stores.jobs)
    rows = deployment.stores.rows.of_whole_job(job)
    fired = [each for each in rows if each.status is Status.FIRED and each.fire_id is not None]
    if not fired:
        raise RequestError(f"no rule fires on job {job!r}", "What is not wrong is not stopped.")
    return max(fired, key=lambda each: each.fired_at or 0.0)
