"""An NVML with set answers and the names of `pynvml`."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from trainguard_collector.gpu import find_nvidia
from trainguard_collector.metrics import Sample

NOT_SUPPORTED, UNKNOWN, LOST, TIMEOUT, NO_PERMISSION, NO_FUNCTION = 3, 999, 15, 10, 4, 13


class Nvml:
    """`failing` maps a GPU's number and a function's name to the error it gives; `calls` counts all calls."""

    NVML_CLOCK_SM = 1
    NVML_VOLATILE_ECC = 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
    NVML_ERROR_TIMEOUT = TIMEOUT
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES = 197
    NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 198
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    NVML_GPM_METRIC_SM_OCCUPANCY = 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL = 5
    NVML_GPM_METRIC_DRAM_BW_UTIL = 10
    NVML_GPM_METRIC_PCIE_TX_PER_SEC = 20
    NVML_GPM_METRIC_PCIE_RX_PER_SEC = 21
    NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC = 60
    NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC = 61
    nvmlEventTypeXidCriticalError = 8

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__(f"NVML error {value}")
            self.value = value

    def __init__(
        self, gpus: int, *, mig: frozenset[int] = frozenset(), gpm: Mapping[int, float | None] | None = None
    ) -> None:
        """``gpm`` maps metrics of GPM to their values, None for one that is not supported; without it there is none."""
        self.gpus, self.mig, self.gpm = gpus, mig, gpm
        self.failing: dict[tuple[int, str], int] = {}
        self.calls: list[str] = []
        self.xids: dict[int, list[int]] = {}
        self.bytes = 0
        self.value_type = 3

    def nvmlInit(self) -> None:
        self.calls.append("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        return self.gpus

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetHandleByIndex": lambda gpu: gpu,
            "nvmlDeviceGetMigMode": lambda gpu: [int(gpu in self.mig), 0],
            "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: 2,
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, number: gpu if number == 0 else _Second(gpu),
            "nvmlDeviceGetUUID": self._uuid,
            "nvmlDeviceGetName": lambda gpu: "NVIDIA H100",
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=40 + gpu, memory=20),
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(used=7 << 30, total=80 << 30),
            "nvmlDeviceGetPowerUsage": lambda gpu: 412_345,
            "nvmlDeviceGetEnforcedPowerLimit": lambda gpu: 700_000,
            "nvmlDeviceGetTemperature": lambda gpu, sensor: 61,
            "nvmlDeviceGetClockInfo": lambda gpu, kind: 1_200,
            "nvmlDeviceGetMaxClockInfo": lambda gpu, kind: 1_980,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda gpu: 0x40,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: 0x20,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda gpu: 8,
            "nvmlDeviceGetMaxPcieLinkWidth": lambda gpu: 16,
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda gpu: 1,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda gpu: 5,
            "nvmlDeviceGetFieldValues": lambda gpu, fields: [self._field() for _ in fields],
            "nvmlGpmQueryDeviceSupport": lambda gpu: SimpleNamespace(isSupportedDevice=self.gpm is not None),
            "nvmlGpmSampleAlloc": lambda: SimpleNamespace(of=None),
            "nvmlGpmSampleGet": lambda gpu, sample: setattr(sample, "of", gpu),
            "nvmlDeviceGetGpuInstanceId": lambda instance: 7,
            "nvmlGpmMigSampleGet": lambda gpu, instance, sample: setattr(sample, "of", (gpu, instance)),
            "c_nvmlGpmMetricsGet_t": lambda: SimpleNamespace(metrics=[SimpleNamespace() for _ in range(98)]),
            "nvmlGpmMetricsGet": self._between,
            "nvmlDeviceGetTotalEccErrors": lambda gpu, kind, counter: kind,
            "nvmlDeviceGetRemappedRows": lambda gpu: [1, 2, 0, 0],
            "nvmlEventSetFree": lambda events: None,
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

    def _uuid(self, handle: int) -> bytes | str:
        inner = self.calls[-2:-1] == ["nvmlDeviceGetMigDeviceHandleByIndex"]
        return f"MIG-{handle}-{int(isinstance(handle, _Second))}" if inner else f"GPU-{handle}".encode()

    def _field(self) -> Any:
        return SimpleNamespace(nvmlReturn=0, valueType=self.value_type, value=SimpleNamespace(ullVal=self.bytes))

    def _between(self, request: Any) -> None:
        assert request.sample1 is not request.sample2
        assert request.sample1.of == request.sample2.of
        for metric in request.metrics[: request.numMetrics]:
            value = (self.gpm or {}).get(metric.metricId)
            metric.nvmlReturn, metric.value = (NOT_SUPPORTED, 0.0) if value is None else (0, value)

    def _event(self, events: Any, timeout_ms: int) -> Any:
        assert timeout_ms == 0, "the sampler must not wait for an event"
        waiting = self.xids.get(events.gpu, [])
        if not waiting:
            raise self.NVMLError(TIMEOUT)
        return SimpleNamespace(eventData=waiting.pop(0))


class _Second(int):
    """The handle of a GPU's second MIG instance."""


class Gpus:
    """The GPUs that a library finds, read one after another."""

    def __init__(self, library: Nvml, *only: str) -> None:
        self.faults: dict[str, str] = {}
        self._devices = find_nvidia(self.faults, library, only)

    def read(self, at: float, *, with_slow: bool) -> list[Sample]:
        return [sample for device in self._devices for sample in device.read(at, with_slow=with_slow)]
