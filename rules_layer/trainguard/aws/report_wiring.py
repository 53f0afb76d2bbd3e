"""Wires the functions of a report, without the engine's imports that they do not need."""

from typing import Protocol, TypeVar

from trainguard.aws.clients import Clients
from trainguard.aws.dynamodb.jobs import DynamoJobs
from trainguard.aws.dynamodb.node_states import DynamoNodeStates
from trainguard.aws.environment import Environment
from trainguard.aws.s3_objects import S3ProfileObjects
from trainguard.core.ports import ReportObjects
from trainguard.core.stores import Jobs, NodeStates

T_co = TypeVar("T_co", covariant=True)


class OverStores(Protocol[T_co]):
    """Makes a report's plan, or the report itself, from its stores."""

    def __call__(self, *, jobs: Jobs, nodes: NodeStates, objects: ReportObjects) -> T_co:
        """Return it."""


def over_stores(make: OverStores[T_co], environment: Environment) -> T_co:
    """Return the result of ``make`` on the stores that a function's environment names."""
    clients = Clients()
    return make(
        jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
        nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
        objects=S3ProfileObjects(client=clients.s3),
    )


def profile_objects() -> ReportObjects:
    return S3ProfileObjects(client=Clients().s3)
