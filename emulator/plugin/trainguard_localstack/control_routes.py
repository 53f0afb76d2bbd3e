"""What tests and the demo may ask of the emulator: ``POST /_trainguard/training-jobs/<name>/finish`` or ``backdate``.

``finish?status=Completed/Failed[&reason=...]``; ``backdate?began=<ISO 8601>`` of the job that is created next; ``GET
/_trainguard/calls[?action=StopTrainingJob][&job=<name>]`` lists the SageMaker calls.
"""

import datetime
import json

from localstack.constants import AWS_REGION_US_EAST_1, DEFAULT_AWS_ACCOUNT_ID
from localstack.http import Request, Response, route
from localstack.services.edge import ROUTER

from .sagemaker_provider import CALLS, JOBS
from .training_jobs import JobKey, TrainingJobError


def install() -> None:
    ROUTER.add([_finish, _backdate, _calls])


@route("/_trainguard/training-jobs/<name>/finish", methods=["POST"])
def _finish(request: Request, name: str) -> Response:
    status = request.args.get("status", "Completed")
    if status not in {"Completed", "Failed"}:
        return _answer(400, {"error": f"status {status!r}: must be Completed or Failed"})
    key = _key(request, name)
    try:
        JOBS.finish(key, status=status, reason=request.args.get("reason"))
    except TrainingJobError as error:
        return _answer(409, {"error": f"{key.arn}: {error}"})
    return _answer(200, {"TrainingJobArn": key.arn, "TrainingJobStatus": status})


@route("/_trainguard/training-jobs/<name>/backdate", methods=["POST"])
def _backdate(request: Request, name: str) -> Response:
    key, began = _key(request, name), request.args.get("began", "")
    try:
        at = datetime.datetime.fromisoformat(began).astimezone(datetime.UTC)
    except ValueError:
        return _answer(400, {"error": f"began {began!r}: must be a time as ISO 8601"})
    JOBS.backdate(key, at)
    return _answer(200, {"TrainingJobArn": key.arn, "TrainingStartTime": at.isoformat()})


@route("/_trainguard/calls", methods=["GET"])
def _calls(request: Request) -> Response:
    wanted = {name: request.args[name] for name in ("action", "job") if name in request.args}
    calls = [each for each in list(CALLS) if all(each[name] == value for name, value in wanted.items())]
    return _answer(200, {"calls": calls})


def _key(request: Request, name: str) -> JobKey:
    account = request.args.get("account", DEFAULT_AWS_ACCOUNT_ID)
    return JobKey(account, request.args.get("region", AWS_REGION_US_EAST_1), name)


def _answer(status: int, body: object) -> Response:
    return Response(json.dumps(body), status=status, mimetype="application/json")
