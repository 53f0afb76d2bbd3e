"""Fixtures of the contract tests and of those of the functions."""

import os
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from botocore import session
from botocore.config import Config
from botocore.loaders import create_loader
from moto import mock_aws

from tests.functional.deployment import Deployment
from tests.functional.offline import offline_clients, offline_session
from tests.functional.quick_moto import hasten
from tests.functional.worlds import MemoryUnderTest, MotoUnderTest, World
from trainguard.aws.clients import Clients


@pytest.fixture(scope="session", autouse=True)
def models_read_once() -> Iterator[None]:
    """Let all sessions of the process share one loader, so that the model of each service is read once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session, "create_loader", cache(create_loader))
        patched.setattr(Clients, "create", _shared(Clients.create))
        hasten(patched)
        yield


def _shared(create: Callable[..., object]) -> Callable[..., object]:
    """Let commands in the same environment share their clients: making one takes longer than a test's calls."""
    made: dict[tuple[object, ...], object] = {}

    def shared(self: Clients, service: str, own: Config | None) -> object:
        if self.session is offline_session():
            return create(self, service, own)
        told = [each for each in os.environ.items() if each[0].startswith("AWS_") or each[0] == "HOME"]
        settings = (own, self.session.profile, vars(self)["_region"], *sorted(told))
        key = (type(self), type(self.session), service, *settings)
        if key not in made:
            made[key] = create(self, service, own)
        return made[key]

    return shared


@pytest.fixture(scope="session")
def clients() -> Clients:
    """Return clients that all tests share: moto stands in front of whatever they send."""
    return offline_clients()


@pytest.fixture
def moto_world(clients: Clients) -> Iterator[MotoUnderTest]:
    """Return the AWS adapters on an empty moto."""
    with mock_aws():
        yield MotoUnderTest(clients)


@pytest.fixture(params=["memory", "moto"])
def world(request: pytest.FixtureRequest) -> World:
    """Return an empty world of each kind."""
    if request.param == "memory":
        return MemoryUnderTest()
    on_moto: MotoUnderTest = request.getfixturevalue("moto_world")
    return on_moto


@pytest.fixture
def deployment(
    clients: Clients, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Deployment]:
    """Return the functions on an empty moto."""
    with mock_aws():
        yield Deployment(clients, monkeypatch, capsys)
