"""The names of a page: each once, cut where it is long, and bounded all together."""

import msgspec

from trainguard.report.html.islands import in_script
from trainguard.report.html.names import shown_name

LONGEST_NAME = 200
MOST_BYTES = 450_000
OMITTED = "(a name that this page leaves out)"


class PageNames:
    """Names by number, in the order of their first use; what goes beyond the limit shares one number."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._numbers: dict[str, int] = {OMITTED: 0}
        self._texts = [OMITTED]
        self._left = most_bytes
        self.omitted = 0

    def number(self, name: str) -> int:
        """Return a name's number."""
        known = self._numbers.get(name)
        if known is None:
            known = self._numbers[name] = self._add(shown_name(name, LONGEST_NAME))
        return known

    def _add(self, text: str) -> int:
        size = len(in_script(msgspec.json.encode(text))) + 1
        if size > self._left:
            self.omitted += 1
            return 0
        self._left -= size
        self._texts.append(text)
        return len(self._texts) - 1

    def texts(self) -> list[str]:
        """Return the names by number, cut and fit to be seen."""
        return self._texts
