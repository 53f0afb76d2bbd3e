"""LocalStack's Step Functions evaluate JSONata through `jsonata_engine`."""

from localstack.aws.api.stepfunctions import EvaluationFailedEventDetails, HistoryEventType
from localstack.services.stepfunctions.asl.component.common.error_name.failure_event import (
    FailureEvent,
    FailureEventException,
)
from localstack.services.stepfunctions.asl.component.common.error_name.states_error_name import StatesErrorName
from localstack.services.stepfunctions.asl.component.common.error_name.states_error_name_type import (
    StatesErrorNameType,
)
from localstack.services.stepfunctions.asl.component.common.string.string_expression import StringJSONata
from localstack.services.stepfunctions.asl.eval.environment import Environment
from localstack.services.stepfunctions.asl.eval.event.event_detail import EventDetails

from .jsonata_engine import JsonataError, evaluate


def install() -> None:
    StringJSONata._eval_body = _evaluate


def _evaluate(string: StringJSONata, env: Environment) -> None:
    variables = env.variable_store
    bindings = variables._outer_scope | variables._inner_scope | {"states": env.states._states_data}
    try:
        env.stack.append(evaluate(string.expression, bindings))
    except JsonataError as error:
        raise _failure(env, str(error)) from error


def _failure(env: Environment, cause: str) -> FailureEventException:
    """Return the error that a Catch knows as ``States.QueryEvaluationError``, after noting it in the history."""
    name = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError)
    details = EventDetails(
        evaluationFailedEventDetails=EvaluationFailedEventDetails(cause=cause, error=name.error_name)
    )
    event = FailureEvent(env=env, error_name=name, event_type=HistoryEventType.EvaluationFailed, event_details=details)
    env.event_manager.add_event(
        context=env.event_history_context, event_type=HistoryEventType.EvaluationFailed, event_details=details
    )
    return FailureEventException(failure_event=event)
