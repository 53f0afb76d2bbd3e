"""Devices read in a thread: a driver call that does not return delays no other sample, and is reported."""

import threading
import time
from collections.abc import Iterator

import pytest

from trainguard_collector.accelerators import STALLED_S, Patient
from trainguard_collector.metrics import PASSING, Device, Sample, Values

SOON_S = 0.02


class Driver:
    """Two devices; a call for one that is in `stuck` returns when it is taken out."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        self.stuck: dict[str, threading.Event] = {}
        self.devices = [self._device(name) for name in ("gpu0", "gpu1")]

    def _device(self, name: str) -> Device:
        device = Device(name, self.faults, lambda _: PASSING)

        def read(_: float) -> Values:
            if name in self.stuck:
                self.stuck[name].wait(30.0)
            yield "PowerWatts", "", 100.0

        device.fast["Power"] = read
        return device

    def stick(self, name: str) -> None:
        self.stuck[name] = threading.Event()

    def let_go(self, name: str) -> None:
        self.stuck.pop(name).set()


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    yield driver
    for name in list(driver.stuck):
        driver.let_go(name)


def names(samples: list[Sample]) -> set[str]:
    return {sample.name for sample in samples if sample.name.endswith("PowerWatts")}


def unanswered(samples: list[Sample]) -> dict[str, float]:
    return {sample.name: sample.value for sample in samples if sample.name.endswith("Unanswered")}


def until_back(patient: Patient, at: float) -> list[Sample]:
    for _ in range(500):
        samples = patient.read(at, with_slow=True, within_s=SOON_S)
        if len(names(samples)) == 2:
            return samples
        time.sleep(0.01)
    raise AssertionError("the device did not come back")


def test_first_reading_has_slow_metrics_and_the_values(driver: Driver) -> None:
    patient = Patient(lambda: driver.devices, driver.faults, 0.0)
    samples = patient.read(1.0, with_slow=False)
    assert names(samples) == {"gpu0.PowerWatts", "gpu1.PowerWatts"}
    assert "gpu0.Lost" in {sample.name for sample in samples}
    assert unanswered(samples) == {"gpu0.Unanswered": 0.0, "gpu1.Unanswered": 0.0}
    assert unanswered(patient.read(2.0, with_slow=False)) == {}


def test_hung_call_names_the_device_and_others_go_on(
    driver: Driver,
) -> None:
    patient = Patient(lambda: driver.devices, driver.faults, 0.0)
    patient.read(1.0, with_slow=True)
    driver.stick("gpu0")
    assert patient.read(2.0, with_slow=False, within_s=SOON_S) == []
    assert patient.read(1.5 + STALLED_S, with_slow=False, within_s=SOON_S) == []
    samples = patient.read(2.0 + STALLED_S, with_slow=True)
    assert names(samples) == {"gpu1.PowerWatts"}
    assert unanswered(samples) == {"gpu0.Unanswered": 1.0, "gpu1.Unanswered": 0.0}
    assert "gpu0.Unanswered" in driver.faults
    assert patient.lost == ["gpu0"]
    assert len(patient) == 2


def test_device_is_back_after_a_hung_call_returns(driver: Driver) -> None:
    patient = Patient(lambda: driver.devices, driver.faults, 0.0)
    driver.stick("gpu1")
    patient.read(1.0, with_slow=True, within_s=SOON_S)
    assert names(patient.read(1.0 + STALLED_S, with_slow=True)) == {"gpu0.PowerWatts"}
    driver.let_go("gpu1")
    samples = until_back(patient, 30.0)
    assert unanswered(samples) == {"gpu0.Unanswered": 0.0, "gpu1.Unanswered": 0.0}
    assert driver.faults == {}


def test_late_reading_is_left_out_and_slow_metrics_follow(
    driver: Driver,
) -> None:
    patient = Patient(lambda: driver.devices, driver.faults, 0.0)
    driver.stick("gpu0")
    assert patient.read(1.0, with_slow=True, within_s=SOON_S) == []
    driver.let_go("gpu0")
    samples: list[Sample] = []
    while not samples:
        samples = patient.read(2.0, with_slow=False, within_s=SOON_S)
    assert len(names(samples)) == 2
    assert "gpu0.Lost" in {sample.name for sample in samples}


def test_hung_driver_load_is_reported_without_waiting(driver: Driver) -> None:
    loaded = threading.Event()

    def find() -> list[Device]:
        loaded.wait(30.0)
        return driver.devices

    patient = Patient(find, driver.faults, 0.0)
    assert patient.read(1.0, with_slow=True, within_s=SOON_S) == []
    assert patient.read(STALLED_S, with_slow=True, within_s=60.0) == []
    assert list(driver.faults) == ["driver"]
    assert len(patient) == 0
    loaded.set()
    assert len(names(until_back(patient, STALLED_S + 1.0))) == 2
    assert driver.faults == {}
