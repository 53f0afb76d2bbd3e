"""LocalStack's Lambda service runs functions as child processes, through ``LAMBDA_RUNTIME_EXECUTOR``."""

import os
import time
from pathlib import Path

from localstack import config
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.plugins import RuntimeExecutorPlugin
from localstack.services.lambda_.invocation.runtime_executor import LambdaRuntimeException, RuntimeExecutor

from .lambda_process import LambdaProcess, python_path

INTERPRETER_VARIABLE = "TRAINGUARD_LAMBDA_PYTHON"
PACKAGES_VARIABLE = "TRAINGUARD_LAMBDA_RUNTIME"
LOCALHOST = "127.0.0.1"


class ProcessExecutor(RuntimeExecutor):
    """One execution environment of a Python function, in a child process."""

    def __init__(self, environment_id: str, function_version: FunctionVersion) -> None:
        super().__init__(environment_id, function_version)
        self._process: LambdaProcess | None = None

    @classmethod
    def validate_environment(cls) -> bool:
        return True

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        runtime = function_version.config.runtime or "(none)"
        if not runtime.startswith("python"):
            raise LambdaRuntimeException(f"runtime {runtime}: the process executor runs Python functions only")
        function_version.config.code.prepare_for_execution()
        for layer in function_version.config.layers or []:
            layer.code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """Leave the unpacked code to the end of the emulator, since versions may share it."""

    def get_address(self) -> str:
        return LOCALHOST

    def get_endpoint_from_executor(self) -> str:
        return LOCALHOST

    def get_runtime_endpoint(self) -> str:
        """Return the address for call-backs, which this executor does not use."""
        return f"http://{LOCALHOST}:{config.GATEWAY_LISTEN[0].port}/_localstack_lambda/{self.id}"

    def get_logs(self) -> str:
        """Return nothing: each invocation's log stands in its own result."""
        return ""

    def start(self, env_vars: dict[str, str]) -> None:
        """Start the child process; a handler that cannot be loaded is reported by each invocation, as on AWS."""
        settings = self.function_version.config
        code = Path(settings.code.get_unzipped_code_location())
        layers = [Path(layer.code.get_unzipped_code_location()) for layer in settings.layers or []]
        environment = {name: str(value) for name, value in env_vars.items()} | {
            "LAMBDA_TASK_ROOT": str(code),
            "PYTHONPATH": python_path(code, layers, settings.runtime, Path(os.environ[PACKAGES_VARIABLE])),
            "PYTHONUNBUFFERED": "1",
            "PYTHONIOENCODING": "utf-8",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{settings.runtime}",
        }
        self._process = LambdaProcess(
            interpreter=os.environ[INTERPRETER_VARIABLE],
            environment=environment,
            folder=code,
            timeout_s=float(settings.timeout),
        )
        self._process.start()

    def stop(self) -> None:
        """End the child process, after the invocation in flight."""
        if self._process is not None:
            self._process.stop()

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Run one invocation and report it with the lines that Lambda writes around a log."""
        if self._process is None:
            raise LambdaRuntimeException(f"environment {self.id} of {self.function_version.id} was not started")
        request_id = payload["invoke-id"]
        started_s = time.monotonic()
        answer, is_error, logged = self._process.invoke(payload)
        elapsed_ms = (time.monotonic() - started_s) * 1000
        log = (
            f"START RequestId: {request_id} Version: {self.function_version.id.qualifier}\n{logged}"
            f"END RequestId: {request_id}\nREPORT RequestId: {request_id}\tDuration: {elapsed_ms:.2f} ms\t"
            f"Memory Size: {self.function_version.config.memory_size} MB\n"
        )
        return InvocationResult(request_id, answer.encode(), is_error=is_error, logs=log)


class ProcessExecutorPlugin(RuntimeExecutorPlugin):
    """Registers `ProcessExecutor` as ``LAMBDA_RUNTIME_EXECUTOR=trainguard-process``."""

    name = "trainguard-process"

    def load(self, *_args: object, **_kwargs: object) -> type[RuntimeExecutor]:
        return ProcessExecutor
