"""Puts the AWS adapters together for the functions of a report, which import nothing of the engine's that they lack."""

from typing import Protocol, TypeVar

from trainguard.adapters.clients import Clients
from trainguard.adapters.dynamodb_jobs import DynamoJobs
from trainguard.adapters.dynamodb_node_states import DynamoNodeStates
from trainguard.adapters.environment import BuildReportEnvironment
from trainguard.adapters.s3_objects import S3ProfileObjects
from trainguard.ports import ReportObjects
from trainguard.stores import Jobs, NodeStates

T_co = TypeVar("T_co", covariant=True)


class OverStores(Protocol[T_co]):
    """What is made of a report's stores: its plan, or the report itself."""

    def __call__(self, *, jobs: Jobs, nodes: NodeStates, objects: ReportObjects) -> T_co:
        """Return it."""
        ...


def over_stores(make: OverStores[T_co], environment: BuildReportEnvironment) -> T_co:
    """Return what ``make`` makes of the stores that a function's environment names."""
    clients = Clients()
    return make(
        jobs=DynamoJobs(client=clients.dynamodb, table=environment.jobs_table),
        nodes=DynamoNodeStates(client=clients.dynamodb, table=environment.node_state_table),
        objects=S3ProfileObjects(client=clients.s3),
    )


def profile_objects() -> ReportObjects:
    """Return the profile's objects alone."""
    return S3ProfileObjects(client=Clients().s3)
