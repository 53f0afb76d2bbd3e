"""Which tensors a run's collections hold."""

from collections.abc import Iterable

from trainguard.formats.tensors.debug.json_files import EVERY_TENSOR, Collection, Collections
from trainguard.formats.tensors.debug.keys import bare_name
from trainguard.formats.tensors.name_patterns import NamePattern, NamePatternError, name_pattern

MOST_REMEMBERED = 100_000
"""More names are asked for again."""

SEARCH_BUDGET = 2_000_000_000
"""Steps of all searches of a run at worst, about 20 s; a hundred thousand names take a quarter of it."""


class Membership:
    """Answers whether a tensor belongs to a collection: it is listed, or a regular expression is found in it.

    ``unusable`` are expressions that were not searched in every name, and why.
    """

    def __init__(self, collections: Collections) -> None:
        self.unusable: dict[str, str] = {}
        self._listed = {
            name: each.listed | {bare_name(tensor) for tensor in each.listed}
            for name, each in collections.by_name.items()
        }
        self._patterns = {name: self._compiled(each) for name, each in collections.by_name.items()}
        self._left = SEARCH_BUDGET
        self._answers: dict[tuple[str, str], bool] = {}

    @property
    def names(self) -> Iterable[str]:
        """Names of the collections."""
        return self._listed.keys()

    def members(self, collection: str, names: Iterable[str]) -> frozenset[str]:
        """Return the tensors that a collection holds: ``loss:0`` also by the name of its reductions, ``loss``."""
        if collection == EVERY_TENSOR:
            return frozenset(names)
        if collection not in self._listed:
            return frozenset()
        return frozenset(name for name in names if self._holds(collection, name))

    def _holds(self, collection: str, name: str) -> bool:
        if name in self._listed[collection]:
            return True
        if not self._patterns[collection]:
            return False
        answer = self._answers.get((collection, name))
        if answer is None:
            answer = any(self._found(pattern, name) for pattern in self._patterns[collection])
            if len(self._answers) < MOST_REMEMBERED:
                self._answers[collection, name] = answer
        return answer

    def _found(self, pattern: NamePattern, name: str) -> bool:
        self._left -= pattern.cost(name)
        if self._left < 0:
            self.unusable[pattern.text] = "searches in all names of the run could take too long"
            return False
        try:
            return pattern.matches(name)
        except NamePatternError as fault:
            self.unusable[pattern.text] = str(fault)
            return False

    def _compiled(self, collection: Collection) -> list[NamePattern]:
        patterns = []
        for text in collection.patterns:
            try:
                patterns.append(name_pattern(text))
            except NamePatternError as fault:
                self.unusable[text] = str(fault)
        return patterns
