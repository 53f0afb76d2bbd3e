"""The protocol with one of its safeguards taken out: each a change of the code's syntax tree, applied for a while."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.support import memory as stop_budget
from trainguard.engine import batch, outbox, summary
from trainguard.engine.jobs import job_registry
from trainguard.engine.ordering.grid_order import GridOrder
from trainguard.engine.ordering.partition_order import PartitionOrder
from trainguard.stack.actions import stop, stop_rate_limit
from trainguard.testing.memory import MemoryNodeStates


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard that is missing.

    Attributes
    ----------
    name : str
    holder : object
        The class or module whose function is changed.
    function : str
    old, new : str
        An expression or statement of the function, and what stands in its place.
    also : tuple of module
        Modules that have imported the function by its name.
    kinds : tuple of str
        The faults that the safeguard is there for.
    """

    name: str
    holder: Any
    function: str
    old: str
    new: str
    kinds: tuple[str, ...]
    also: tuple[Any, ...] = ()


MUTANTS = (
    Mutant(
        "no version check",
        MemoryNodeStates,
        "save",
        "raise StateConflictError(item, record.version)",
        "pass",
        ("frozen", "race"),
    ),
    Mutant(
        "no listing before a gap",
        GridOrder,
        "ready",
        "listed = False",
        "listed = True",
        ("lost message", "late message", "outage"),
    ),
    Mutant(
        "no listing before a partition moves",
        PartitionOrder,
        "ready",
        "self._list(listing, self.listed, due)",
        "pass",
        ("lost message", "late message", "outage"),
    ),
    Mutant(
        "no derived execution name",
        outbox,
        "execution_name",
        "return name_of_execution(f'{entry.finding.rule}-{entry.alert_id}-{job}')",
        "import uuid; return name_of_execution(f'{entry.finding.rule}-{uuid.uuid4()}-{job}')",
        ("dies at", "crash"),
        (job_registry,),
    ),
    Mutant(
        "no hold for what is late",
        GridOrder,
        "_overdue",
        "position <= self.max_seen - self.lateness",
        "position <= self.max_seen",
        ("slow upload",),
    ),
    Mutant(
        "outbox cleared before the start",
        outbox,
        "drain",
        "unsent = record.unsent",
        "unsent = record.unsent; services.nodes.mark_sent(record.key, [entry.alert_id for entry in unsent])",
        ("dies at", "crash"),
        (batch, summary),
    ),
    Mutant(
        "closed by a mark while the job runs",
        batch.BatchProcessor,
        "_follow",
        "status.is_final and described.active",
        "described.active",
        ("end mark early",),
    ),
    Mutant(
        "finished before every stream has closed",
        summary.Summariser,
        "_attempt",
        "job.closing and streams.closed and not to_come",
        "job.closing",
        ("port fails", "late message", "lost message", "end event twice"),
    ),
    Mutant(
        "no identity check of a stop",
        stop,
        "_objection_of_job",
        "_objection_of_identity(case, description) or _objection_of_status(case, description)",
        "_objection_of_status(case, description)",
        ("another job",),
    ),
    Mutant(
        "no stop rate limit",
        stop_rate_limit,
        "take",
        "len(recent) + (not is_counted) > limit",
        "False",
        ("stops taken",),
        (stop_budget,),
    ),
)


class _Replace(ast.NodeTransformer):
    """Puts one piece of syntax in the place of another."""

    def __init__(self, old: str, new: str) -> None:
        replaced, self._new = ast.parse(old).body[0], ast.parse(new).body
        first = self._new[0]
        self._value = first.value if isinstance(replaced, ast.Expr) and isinstance(first, ast.Expr) else None
        self._old = ast.dump(replaced.value if self._value and isinstance(replaced, ast.Expr) else replaced)
        self.met = 0

    def visit(self, node: ast.AST) -> Any:
        """Replace a node that is the one looked for."""
        if ast.dump(node) == self._old:
            self.met += 1
            return self._new if self._value is None else self._value
        return self.generic_visit(node)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Let the mutant stand in the place of the code.

    Raises
    ------
    ValueError
        When the code no longer holds what the mutant replaces: rewrite the mutant.
    """
    original: Callable[..., Any] = getattr(mutant.holder, mutant.function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(original)))
    change = _Replace(mutant.old, mutant.new)
    tree = ast.fix_missing_locations(change.visit(tree))
    if change.met != 1:
        raise ValueError(f"mutant {mutant.name!r}: {mutant.function} holds {mutant.old!r} {change.met} times, not once")
    names = dict(vars(inspect.getmodule(original)))
    exec(compile(tree, f"<mutant {mutant.name}>", "exec"), names)  # noqa: S102 - our own code, changed
    with ExitStack() as stack:
        for place in (mutant.holder, *mutant.also):
            if hasattr(place, mutant.function):
                stack.enter_context(patch.object(place, mutant.function, names[mutant.function]))
        yield
