"""Reads a page as a browser would, for tests to ask about."""

from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

# What begins with a space between its text and the text before.
APART = frozenset({"td", "th", "dt", "dd", "p", "div", "li", "caption", "summary", "h2", "h3", "span", "table", "br"})

VOID = frozenset({"meta", "link", "br", "wbr", "img", "input", "hr", "use", "path", "line", "rect", "circle", "image"})
FOREIGN = ("iframe", "object", "embed", "base", "form", "img", "foreignobject")
NAMED = ("h1", "h2", "h3", "caption", "summary", "a")
OWN = ("#", "data:image/svg+xml,", "data:image/png;base64,")
URLS = frozenset({"href", "src", "xlink:href", "action", "formaction", "poster", "data", "srcset"})


@dataclass
class Element:
    """An element with its attributes, the text in it, and how deep it lies."""

    tag: str
    attributes: dict[str, str]
    inside: tuple[str, ...]
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass
class PageRead(HTMLParser):
    """A page's elements, in order."""

    elements: list[Element] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    unclosed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(each.tag for each in self._open))
        self.elements.append(element)
        if tag in APART:
            self.handle_data(" ")
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        inside = tuple(each.tag for each in self._open)
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}, inside))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        while self._open and self._open[-1].tag != tag:
            self.unclosed.append(self._open.pop().tag)
        if self._open:
            self._open.pop()
        else:
            self.unclosed.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        """Add text to what it lies in; what a drawing says is no part of the text around it."""
        for element in reversed(self._open):
            element.parts.append(data)
            if element.tag == "svg":
                return

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def of(self, *tags: str) -> list[Element]:
        """Return the elements of some tags."""
        return [element for element in self.elements if element.tag in tags]

    def within(self, tag: str, *tags: str) -> list[Element]:
        """Return the elements of ``tags`` that lie in a ``tag``."""
        return [element for element in self.of(*tags) if tag in element.inside]

    @property
    def ids(self) -> list[str]:
        return [element.attributes["id"] for element in self.elements if "id" in element.attributes]

    @property
    def by_id(self) -> dict[str, Element]:
        return {element.attributes["id"]: element for element in self.elements if "id" in element.attributes}

    @property
    def links(self) -> list[str]:
        return [element.attributes["href"] for element in self.of("a")]

    @property
    def classes(self) -> Counter[str]:
        return Counter(name for each in self.elements for name in each.attributes.get("class", "").split())

    @property
    def text(self) -> str:
        return self.of("body")[0].text


def read_page(page: str) -> PageRead:
    """Parse a page."""
    read = PageRead()
    read.feed(page)
    read.close()
    return read


def faults_of(page: str) -> list[str]:
    """Return what is wrong with a page, whatever it shows: an empty list for a sound one."""
    read = read_page(page)
    return [*_structure(read), *_foreign_code(read), *_names(read), *_headings(read)]


def _structure(read: PageRead) -> list[str]:
    twice = [name for name, times in Counter(read.ids).items() if times > 1]
    lost = [link for link in read.links if link.startswith("#") and link[1:] not in read.ids]
    return [
        *(f"id {name!r} occurs more than once" for name in twice),
        *(f"link {link!r} has no target" for link in lost),
        *(f"<{tag}> is not closed where it should be" for tag in read.unclosed),
        *(f"comment {comment[:40]!r}" for comment in read.comments),
    ]


def _foreign_code(read: PageRead) -> list[str]:
    faults = []
    for element in read.elements:
        for name, value in element.attributes.items():
            if name.startswith("on") or name == "style":
                faults.append(f"<{element.tag}> has the attribute {name}")
            if name in URLS and not value.startswith(OWN):
                faults.append(f"<{element.tag}> points to {value[:60]!r}")
    faults.extend(f"a <{each.tag}>" for each in read.of(*FOREIGN))
    scripts = [each for each in read.of("script") if each.attributes.get("type") != "application/json"]
    return faults if len(scripts) <= 1 else [*faults, f"{len(scripts)} scripts"]


def _names(read: PageRead) -> list[str]:
    """Tell tables without a caption, header cells without a scope, and drawings without a name."""
    faults = [
        f"the table {table.text[:40]!r} has no caption"
        for table, captions in ((each, "caption") for each in read.of("table"))
        if len(read.within("table", captions)) != len(read.of("table"))
    ]
    faults.extend(f"<th> {each.text!r} has no scope" for each in read.of("th") if "scope" not in each.attributes)
    for drawing in read.of("svg"):
        hidden = drawing.attributes.get("aria-hidden") == "true"
        named = drawing.attributes.get("role") in {"img", "group"} and (
            drawing.text or drawing.attributes.get("aria-label")
        )
        if not (hidden or named):
            faults.append(f"an <svg class={drawing.attributes.get('class')}> has no name")
    faults.extend(f"<{each.tag}> says nothing" for each in read.of(*NAMED) if not each.text.strip())
    return faults


def _headings(read: PageRead) -> list[str]:
    levels = [int(each.tag[1]) for each in read.of("h1", "h2", "h3", "h4", "h5", "h6")]
    faults = [] if levels[:1] == [1] and levels.count(1) == 1 else [f"the headings are of the levels {levels[:4]}"]
    jumps = [(before, after) for before, after in pairwise(levels) if after > before + 1]
    return [*faults, *(f"a heading of level {after} follows one of {before}" for before, after in jumps)]
