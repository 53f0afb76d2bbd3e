"""A page in one file: templates, one style, at most one script, and a policy that lets nothing else run or load.

A page of its own is a template that extends ``base.html.j2`` and fills its blocks:

* ``title``: the text of the window's title;
* ``header``: what stands above all, in the landmark of that name;
* ``contents``: links to the page's sections, ``<li><a href="#…">…</a></li>`` each; may be left out;
* ``main``: the sections, each with an ``h2``;
* ``footer``: what stands below all.

``render_page("fleet.html.j2", jobs=…)`` then gives the page. The macros of ``blocks.html.j2`` write the tables and
charts of `trainguard.report.html.blocks`. Everything that a template writes is escaped, and characters that are not
seen are replaced; only Markup is written as it is. No element may have a ``style`` or an event handler as an
attribute: the policy refuses both.
"""

import base64
import functools
import hashlib
import re
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from trainguard.report.html import numbers
from trainguard.report.html.names import shown_name

LONGEST_SENTENCE = 1_200
STYLES = ("tokens.css", "page.css", "picture.css", "tables.css", "rules.css", "plots.css", "print.css")
_WORD_BEGINS = re.compile(r"(?<=[a-zA-Z])(?=[A-Z][a-z])")
_TIMES = re.compile(
    r"(?:(?P<since_day>\d{4}-\d\d-\d\d) (?P<since>\d\d:\d\d) to (?:(?P<later_day>\d{4}-\d\d-\d\d) )?"
    r"|(?P<day>\d{4}-\d\d-\d\d) )(?P<at>\d\d:\d\d) UTC\b"
)
_HERE = Path(__file__).parent
_ASSETS = _HERE.parent / "assets"
_WRITTEN = ("count", "duration", "moment", "money", "number", "percent", "quantity", "seconds", "share")


class UnsafeCodeError(ValueError):
    """Code that would end the element which it is to stand in."""

    def __init__(self, element: str, found: str) -> None:
        self.element = element
        self.found = found
        super().__init__(f"the code of the page's {element} holds {found!r}, which ends the element")


def render_page(template: str, *, styles: str = "", script: str = "", **context: object) -> str:
    """Render a template that extends ``base.html.j2``.

    Parameters
    ----------
    template : str
        Its file name below ``templates/``.
    styles : str
        CSS that the page needs beside the common one.
    script : str
        The page's only script; it runs when all of the page has been read.
    **context
        What the template shows.

    Raises
    ------
    UnsafeCodeError
        When ``styles`` or ``script`` hold what ends their element.
    """
    style = _inline("style", page_style() + styles)
    code = _inline("script", script) if script else Markup("")
    rendered = environment().get_template(template)
    return rendered.render(page_style=style, page_script=code, page_policy=_policy(style, code), **context)


@functools.cache
def environment() -> Environment:
    """Return the templates' environment, with the functions of `numbers` as filters."""
    made = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        {name: getattr(numbers, name) for name in _WRITTEN},
        name=shown_name,
        breakable=breakable,
        prose=prose,
        sentence=sentence,
        told=told,
    )
    return made


@functools.cache
def page_style() -> str:
    """Return the style of all pages."""
    return "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in STYLES)


def breakable(identifier: str) -> Markup:
    """Return an identifier that a line may break where a word of it begins: ``LowGPU|Utilization``."""
    words = _WORD_BEGINS.split(shown_name(identifier))
    return Markup("<wbr>").join(words)


def prose(text: str) -> Markup:
    """Write a text whose code stands between backticks."""
    parts = shown_name(text, LONGEST_SENTENCE).split("`")
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def sentence(text: str) -> str:
    """Begin a sentence with a capital letter, unless it begins with a name such as gpu0 or algo-1."""
    first = text.split(" ", 1)[0].rstrip(",;:.")
    return text[:1].upper() + text[1:] if first.isascii() and first.isalpha() and first.islower() else text


def told(text: str) -> Markup:
    """Write a sentence so that the script can tell its times in another zone; a percent sign stays at its number.

    Times are those that reports write: ``2026-07-14 10:35 to 10:52 UTC``.
    """
    shown = shown_name(text, LONGEST_SENTENCE).replace(" %", "\N{NO-BREAK SPACE}%")
    parts, done = [], 0
    for found in _TIMES.finditer(shown):
        parts += [escape(shown[done : found.start()]), _times(found)]
        done = found.end()
    return Markup("").join([*parts, escape(shown[done:])])


def _times(found: re.Match[str]) -> Markup:
    """Write a time, or a time and the one up to which it goes; the zone once."""
    since = Markup("")
    if found["since"]:
        since = Markup('<time datetime="{0}T{1}Z" data-form="minute">{0} {1}</time> to ').format(
            found["since_day"], found["since"]
        )
    own = found["day"] or found["later_day"]
    day, form = (own, "minute") if own else (found["since_day"], "hour-minute")
    shown = f"{own} {found['at']}" if own else found["at"]
    until = Markup('<time datetime="{}T{}Z" data-form="{}">{}</time> ').format(day, found["at"], form, shown)
    return Markup('{}{}<span data-zone-name="short">UTC</span>').format(since, until)


def _finalize(value: object) -> object:
    """Prepare what a template writes: None as a dash, text made fit to be seen, finished markup as it is."""
    if value is None:
        return numbers.NOTHING
    if isinstance(value, str) and not isinstance(value, Markup):
        return shown_name(value, LONGEST_SENTENCE)
    return value


def _inline(element: str, code: str) -> Markup:
    for found in (f"</{element}", "<!--", "\r"):
        if found in code.lower():
            raise UnsafeCodeError(element, found)
    return Markup(code)  # noqa: S704 -- the project's own files, and checked not to end the element


def _policy(style: str, script: str) -> str:
    allowed = f"'{_hash(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
