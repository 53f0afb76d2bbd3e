"""An NVML that answers as told, with the names of `pynvml`."""

from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, UNKNOWN, LOST, TIMEOUT = 3, 999, 15, 10


class Nvml:
    """`failing` maps a GPU's number and a function's name to the error it gives; `calls` counts all calls."""

    NVML_CLOCK_SM = 1
    NVML_VOLATILE_ECC = 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_ERROR_TIMEOUT = TIMEOUT
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 198
    nvmlEventTypeXidCriticalError = 8

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"NVML error {value}")
            self.value = value

    def __init__(self, gpus: int, *, mig: frozenset[int] = frozenset()) -> None:
        self.gpus, self.mig = gpus, mig
        self.failing: dict[tuple[int, str], int] = {}
        self.calls: list[str] = []
        self.xids: dict[int, list[int]] = {}
        self.bytes = 0

    def nvmlInit(self) -> None:
        self.calls.append("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByIndex": lambda gpu: gpu,
            "nvmlDeviceGetMigMode": lambda gpu: [int(gpu in self.mig), 0],
            "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 2,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, number: gpu,
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=40 + gpu, memory=20),
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=7 << 30, total=80 << 30),
            "nvmlDeviceGetPowerUsage": lambda gpu: 412_345,
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 61,
            "nvmlDeviceGetClockInfo": lambda gpu, kind: 1_200,
            "nvmlDeviceGetMaxClockInfo": lambda gpu, kind: 1_980,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: 0x40,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: 8,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: 16,
            "nvmlDeviceGetFieldValues": lambda gpu, fields: [self._field() for _ in fields],
            "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: kind,
            "nvmlDeviceGetRemappedRows": lambda gpu: [1, 2, 0, 0],
            "nvmlEventSetCreate": lambda: SimpleNamespace(gpu=None),
            "nvmlDeviceRegisterEvents": lambda gpu, kinds, events: setattr(events, "gpu", gpu),
            "nvmlEventSetWait_v2": self._event,
        }
        if name not in answers:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            error = self.failing.get((arguments[0], name)) if arguments and isinstance(arguments[0], int) else None
            if error is not None:
                raise self.NVMLError(error)
            return answers[name](*arguments)

        return call

    def _field(self) -> Any:
        return SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=self.bytes))

    def _event(self, events: Any, timeout_ms: int) -> Any:
        assert timeout_ms == 0, "the sampler must not wait for an event"
        waiting = self.xids.get(events.gpu, [])
        if not waiting:
            raise self.NVMLError(TIMEOUT)
        return SimpleNamespace(eventData=waiting.pop(0))
