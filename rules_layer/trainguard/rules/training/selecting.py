"""Parameters of rules whose tensors are chosen by collections and patterns."""

from typing import ClassVar

from trainguard.rules.training.selection import selected
from trainguard.rules.training.step_rule import StepParameters
from trainguard.tensors.step_view import StepView


class SelectingParameters(StepParameters, frozen=True, kw_only=True):
    """Collections and patterns as in the managed service; ``required`` says that one of them must be given."""

    regex_fields: ClassVar[tuple[str, ...]] = ("tensor_regex",)
    required: ClassVar[bool] = False

    collection_names: tuple[str, ...] | None = None
    tensor_regex: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse a rule without any tensors to look at."""
        super().__post_init__()
        if self.required and not self.selects:
            raise self.fault("collection_names", None, f"collections, or patterns as {self.rule_name}_tensor_regex")

    @property
    def selects(self) -> bool:
        """Whether collections or patterns are given."""
        return bool(self.collection_names or self.tensor_regex)

    def tensors(self, step: StepView) -> tuple[str, ...]:
        """Return the selected tensors of a step, sorted; none where nothing is given."""
        return selected(step, self.collection_names, self.tensor_regex)
