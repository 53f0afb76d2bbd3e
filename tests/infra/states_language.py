"""Runs a state machine in JSONata in memory: as much of Amazon States Language as the two machines use.

A test says what each task answers, or that it fails; time does not pass, so retries are counted and not waited for.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jsonata.jsonata import Jsonata  # type: ignore[import-untyped]  # the package ships no types
from jsonata.utils import Utils  # type: ignore[import-untyped]  # the package ships no types

Task = Callable[[Any], Any]


class TaskError(Exception):
    """A task's error, with the name that ``ErrorEquals`` knows and a cause for people."""

    def __init__(self, error: str, cause: str) -> None:
        self.error = error
        self.cause = cause
        super().__init__(f"{error}: {cause}")


@dataclass(frozen=True, slots=True)
class Ending:
    """How an execution ended."""

    status: str
    error: str | None = None
    cause: str | None = None


def state_names(definition: Any) -> Iterator[str]:
    """Yield the names of all states, those within branches and maps too."""
    if isinstance(definition, dict):
        yield from definition.get("States", {})
        definition = list(definition.values())
    if isinstance(definition, list):
        for part in definition:
            yield from state_names(part)


@dataclass(slots=True)
class Execution:
    """One execution of ``definition``; ``tasks`` answer for the task states, by the state's name.

    The list that a Distributed Map reads is answered by the task of the map's name.

    Attributes
    ----------
    calls : list of (str, object)
        Each attempt of a task: the state's name and its arguments, in order.
    entered : int
        How many states were entered.
    """

    definition: Mapping[str, Any]
    tasks: Mapping[str, Task]
    name: str = "an-execution"
    calls: list[tuple[str, Any]] = field(default_factory=list)
    entered: int = 0
    _input: Any = None
    _failed: tuple[str, Any] | None = None

    def __post_init__(self) -> None:
        names = list(state_names(self.definition))
        assert len(names) == len(set(names)), "Step Functions refuses a machine in which a state's name stands twice"

    def run(self, data: Any) -> Ending:
        """Run from start to end."""
        self._input = data
        return self._run_from(self.definition["StartAt"], data)

    def redrive(self) -> Ending:
        """Go on in the state that failed, with its input: AWS documents no more than that it has this again.

        Variables are gone. In which branch of a parallel state it failed is not known here.
        """
        assert self._failed is not None
        name, data = self._failed
        assert self.definition["States"][name]["Type"] not in {"Parallel", "Map"}
        return self._run_from(name, data)

    def _run_from(self, name: str, data: Any) -> Ending:
        try:
            self._run_states(self.definition, data, {}, start=name)
        except TaskError as failure:
            return Ending("FAILED", failure.error, failure.cause)
        return Ending("SUCCEEDED")

    def arguments_of(self, state: str) -> list[Any]:
        """Return the arguments of each attempt of a task."""
        return [arguments for name, arguments in self.calls if name == state]

    def _run_states(
        self, machine: Mapping[str, Any], data: Any, outer: Mapping[str, Any], start: str | None = None
    ) -> Any:
        """Run the states of a machine or branch in a scope of their own, which sees the variables of ``outer``."""
        variables = dict(outer)
        name: str | None = start or machine["StartAt"]
        while name is not None:
            state = machine["States"][name]
            self.entered += 1
            if machine is self.definition:
                self._failed = name, data
            data, name = getattr(self, f"_run_{state['Type'].lower()}")(name, state, data, variables)
            clash = set(variables) & set(outer)
            assert all(variables[key] == outer[key] for key in clash), "a branch may not assign a variable around it"
        return data

    def _run_pass(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        del name
        return self._leave(state, data, data, self._states(data), variables)

    def _run_succeed(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        del name, state, variables
        return data, None

    def _run_fail(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        del name
        error, cause = (
            evaluate(state[part], {**variables, "states": self._states(data)}) for part in ("Error", "Cause")
        )
        raise TaskError(error, cause)

    def _run_wait(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        until = state.get("Seconds")
        if until is None:
            until = evaluate(state["Timestamp"], {**variables, "states": self._states(data)})
            datetime.fromisoformat(until)
        self.calls.append((name, until))
        return self._leave(state, data, data, self._states(data), variables)

    def _run_choice(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        del name
        for choice in state["Choices"]:
            met = evaluate(choice["Condition"], {**variables, "states": self._states(data)})
            assert isinstance(met, bool), "a condition must be true or false"
            if met:
                return self._leave(choice, data, data, self._states(data), variables)
        output, _ = self._leave(state, data, data, self._states(data), variables)
        return output, state["Default"]

    def _run_parallel(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        del name
        results = [self._run_states(branch, copy.deepcopy(data), variables) for branch in state["Branches"]]
        return self._leave(state, data, results, {"input": data, "result": results}, variables)

    def _run_task(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        states = self._states(data)
        try:
            arguments = evaluate(state["Arguments"], {**variables, "states": states})
            result = self._attempt(name, state, arguments)
            states["result"] = result
            return self._leave(state, data, result, states, variables)
        except TaskError as failure:
            return self._caught(state, failure, data, states, variables)

    def _run_map(self, name: str, state: Any, data: Any, variables: dict[str, Any]) -> tuple[Any, str | None]:
        states = self._states(data)
        distributed = state["ItemProcessor"]["ProcessorConfig"]["Mode"] == "DISTRIBUTED"
        # A child of a Distributed Map is an execution of its own, and knows no variable of the one around it.
        outer = {} if distributed else variables
        try:
            if "ItemReader" in state:
                arguments = evaluate(state["ItemReader"]["Arguments"], {**variables, "states": states})
                self.calls.append((name, arguments))
                items = self.tasks[name](arguments)
            else:
                items = evaluate(state["Items"], {**variables, "states": states})
            results = [self._run_states(state["ItemProcessor"], copy.deepcopy(item), outer) for item in items]
        except TaskError as failure:
            return self._caught(state, failure, data, states, variables)
        return self._leave(state, data, results, {**states, "result": results}, variables)

    def _caught(
        self, state: Any, failure: TaskError, data: Any, states: dict[str, Any], variables: dict[str, Any]
    ) -> tuple[Any, str | None]:
        if "Catch" not in state:
            raise failure
        assert state["Catch"][-1]["ErrorEquals"] == ["States.ALL"]
        catch = next(each for each in state["Catch"] if {failure.error, "States.ALL"} & set(each["ErrorEquals"]))
        states["errorOutput"] = {"Error": failure.error, "Cause": failure.cause}
        return self._leave(catch, data, states["errorOutput"], states, variables)

    def _states(self, data: Any) -> dict[str, Any]:
        """Return what an expression knows as ``$states``, before a task has answered."""
        return {"input": data, "context": {"Execution": {"Name": self.name, "Input": self._input}}}

    def _attempt(self, name: str, state: Any, arguments: Any) -> Any:
        left = [retry["MaxAttempts"] for retry in state["Retry"]]
        while True:
            self.calls.append((name, arguments))
            try:
                return self.tasks[name](arguments)
            except TaskError as failure:
                meant = (
                    number
                    for number, retry in enumerate(state["Retry"])
                    if {failure.error, "States.TaskFailed"} & set(retry["ErrorEquals"])
                )
                number = next(meant, None)
                if number is None or left[number] == 0:
                    raise
                left[number] -= 1

    def _leave(
        self, state: Any, data: Any, output: Any, states: Mapping[str, Any], variables: dict[str, Any]
    ) -> tuple[Any, str | None]:
        """Assign, then give the output and the next state; assignments see the variables as they were."""
        del data
        scope = {**variables, "states": states}
        if "Output" in state:
            output = evaluate(state["Output"], scope)
        variables.update(evaluate(state.get("Assign", {}), scope))
        return output, state.get("Next")


def evaluate(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return ``value`` with each ``{% … %}`` in it evaluated; raises TaskError as Step Functions does."""
    if isinstance(value, dict):
        return {name: evaluate(part, variables) for name, part in value.items()}
    if isinstance(value, list):
        return [evaluate(part, variables) for part in value]
    if not (isinstance(value, str) and value.startswith("{%") and value.endswith("%}")):
        return value
    expression = value[2:-2].strip()
    try:
        compiled = Jsonata(expression)
        compiled.set_output_convert_nulls(False)
        result = compiled.evaluate(None, _with_nulls(dict(variables)))
    except Exception as error:
        raise TaskError("States.QueryEvaluationError", f"{expression}: {error}") from error
    if result is None:
        raise TaskError("States.QueryEvaluationError", f"{expression} returned nothing")
    return _plain(result)


def _with_nulls(value: Any) -> Any:
    """Return ``value`` with the library's own null for None, which to it means that there is nothing."""
    if isinstance(value, dict):
        return {name: _with_nulls(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_nulls(part) for part in value]
    return Utils.NULL_VALUE if value is None else value


def _plain(result: Any) -> Any:
    """Return an expression's result with None for null."""
    if isinstance(result, dict):
        return {name: _plain(part) for name, part in result.items()}
    if isinstance(result, list):
        return [_plain(part) for part in result]
    return None if result is Utils.NULL_VALUE else result
