"""The rules whose findings have no facts yet: of their sentences nothing is checked."""

WITHOUT_FACTS = frozenset[str]()
