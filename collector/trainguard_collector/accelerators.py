"""The accelerators of the node: NVIDIA and AMD GPUs, and NeuronCores.

GPUs are read in a thread: a driver call that does not return delays nothing else. After 20 s its device is reported,
and a new thread reads the others until the call returns.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any, Optional

from trainguard_collector.amd import find_amd
from trainguard_collector.gpu import find_nvidia
from trainguard_collector.metrics import Device, Sample
from trainguard_collector.neuron import Neuron

ANSWER_S = 1.0
STALLED_S = 20.0


class _Hand:
    def __init__(self) -> None:
        self.since: Optional[float] = None
        self.at_device: Optional[Device] = None
        self._work: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="devices", daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self._work.get()
            try:
                answer = work()
            except BaseException:
                answer = []
            self._answers.put(answer)

    def give(self, work: Callable[[], Any], at: float) -> None:
        self.since = at
        self._work.put(work)

    def answer(self, within_s: float) -> Any:
        """Return None when the work is not done."""
        try:
            answer = self._answers.get(timeout=within_s) if within_s > 0.0 else self._answers.get_nowait()
        except queue.Empty:
            return None
        self.since = None
        return answer

    def read(self, devices: Sequence[Device], at: float, with_slow: bool) -> list[Sample]:
        samples: list[Sample] = []
        for device in devices:
            self.at_device = device
            samples += device.read(at, with_slow=with_slow)
        self.at_device = None
        return samples


class Patient:
    """The devices that ``find`` returns, in the thread as well: a driver may take long to load."""

    def __init__(self, find: Callable[[], list[Device]], faults: dict[str, str], at: float) -> None:
        self._faults = faults
        self._devices: Optional[list[Device]] = None
        self._stalled: list[tuple[_Hand, Device]] = []
        self._owes_slow = True
        self._has_waited = False
        self._hand = _Hand()
        self._hand.give(find, at)

    def __len__(self) -> int:
        return len(self._devices or ()) + len(self._stalled)

    @property
    def lost(self) -> list[str]:
        gone = [device for device in self._devices or () if device.is_lost]
        return sorted(device.name for device in [*gone, *(device for _, device in self._stalled)])

    @property
    def all(self) -> list[Device]:
        return [*(self._devices or ()), *(device for _, device in self._stalled)]

    def read(self, at: float, *, with_slow: bool, within_s: float = ANSWER_S) -> list[Sample]:
        """Return the samples at ``at``; none while a call has not returned."""
        self._owes_slow = self._owes_slow or with_slow
        for hand, device in list(self._stalled):
            if hand.answer(0.0) is not None:
                self._stalled.remove((hand, device))
                self._faults.pop(f"{device.name}.Unanswered", None)
                if self._devices is not None:
                    self._devices.append(device)
        if self._devices is None:
            self._devices = self._hand.answer(0.0 if self._has_waited else within_s)
            self._has_waited = True
            if self._devices is not None:
                self._faults.pop("driver", None)
        elif self._hand.since is not None:
            self._hand.answer(0.0)  # too late to be of this time
        if self._hand.since is not None and at - self._hand.since >= STALLED_S:
            self._leave_alone()
        if self._hand.since is not None or self._devices is None:
            return self._unanswered() if with_slow else []
        hand, devices, slow = self._hand, list(self._devices), self._owes_slow
        hand.give(lambda: hand.read(devices, at, slow), at)
        samples: Optional[list[Sample]] = hand.answer(within_s)
        if samples is None:
            return []
        self._owes_slow = False
        return samples + self._unanswered() if slow else samples

    def _leave_alone(self) -> None:
        """Read the others with a new thread; nothing can be read before the devices are found."""
        device = self._hand.at_device
        if self._devices is None or device is None:
            self._faults["driver"] = f"has not answered for {STALLED_S:.0f} s"
            return
        self._faults[f"{device.name}.Unanswered"] = f"the driver has not answered for {STALLED_S:.0f} s"
        self._stalled.append((self._hand, device))
        self._devices.remove(device)
        self._hand = _Hand()

    def _unanswered(self) -> list[Sample]:
        found = [(device, 0.0) for device in self._devices or ()] + [(device, 1.0) for _, device in self._stalled]
        return [Sample("gpu", f"{device.name}.Unanswered", "", value) for device, value in found]


class Accelerators:
    """Finds them when made, of GPUs those that are named, if any; `faults` says which are lost or not measured."""

    def __init__(self, at: float, interval_s: float, gpus: Sequence[str] = ()) -> None:
        self.faults: dict[str, str] = {}
        # Its process is started by the main thread: it ends with the thread that has started it.
        self._neuron: Optional[Neuron] = Neuron.find(self.faults, interval_s)

        def find() -> list[Device]:
            return find_nvidia(self.faults, only=gpus) or find_amd(self.faults, only=gpus)

        self._gpus = Patient(find, self.faults, at)

    def __len__(self) -> int:
        return len(self._gpus) + (len(self._neuron) if self._neuron is not None else 0)

    @property
    def lost(self) -> list[str]:
        return self._gpus.lost

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        samples = self._gpus.read(at, with_slow=with_slow)
        if self._neuron is not None:
            samples += self._neuron.read(at, with_slow=with_slow)
        return samples

    def about(self) -> dict[str, dict[str, str]]:
        """Return what is known of each device, by its name, as attributes of OpenTelemetry."""
        neuron = {} if self._neuron is None else self._neuron.about
        return {**neuron, **{device.name: device.about for device in self._gpus.all}}

    def close(self) -> None:
        if self._neuron is not None:
            self._neuron.close()
