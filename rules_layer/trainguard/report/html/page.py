"""A page in one file: templates, one style, at most one script, and a policy that lets nothing else run or load.

A page's template extends ``base.html.j2``. All that it writes is escaped, but Markup. The policy refuses ``style`` and
event handlers as attributes.
"""

import base64
import functools
import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from trainguard.core.finding import Severity
from trainguard.core.units import counted, listed
from trainguard.render import numbers
from trainguard.render.blocks import heat, plot_column
from trainguard.render.numbers import shown_name
from trainguard.render.plots import svg
from trainguard.render.plots.scale import up_from_zero
from trainguard.render.plots.strips import bar

LONGEST_SENTENCE = 1_200
STYLES = ("tokens.css", "page.css", "picture.css", "tables.css", "rules.css", "plots.css", "print.css")
_WORD_BEGINS = re.compile(r"(?<=[a-zA-Z])(?=[A-Z][a-z])")
_TIMES = re.compile(
    r"(?:(?P<since_day>\d{4}-\d\d-\d\d) (?P<since>\d\d:\d\d) to (?:(?P<later_day>\d{4}-\d\d-\d\d) )?"
    r"|(?P<day>\d{4}-\d\d-\d\d) )(?P<at>\d\d:\d\d) UTC\b"
)
_HERE = Path(__file__).parent
_ASSETS = _HERE.parent / "assets"
# What a number to be seen first is, the number, and a few words more.
KeyFigure = tuple[str, str, str]
# A word in a tone, whose icon says the same as its colour.
Badge = tuple[str, str]
_SEVERITIES: Mapping[str, str] = {
    Severity.CRITICAL: "bad",
    Severity.HIGH: "high",
    Severity.MEDIUM: "warn",
    Severity.LOW: "low",
}


def render_page(template: str, *, styles: str = "", script: str = "", **context: object) -> str:
    """Render a template below ``templates/`` that extends ``base.html.j2``.

    ``script`` runs when all of the page has been read. Raises ValueError when ``styles`` or ``script`` hold what
    ends their element.
    """
    style = _inline("style", page_style() + styles)
    code = _inline("script", script) if script else Markup("")
    rendered = environment().get_template(template)
    return rendered.render(page_style=style, page_script=code, page_policy=_policy(style, code), **context)


@functools.cache
def environment() -> Environment:
    """Return the templates' environment, with the functions of `numbers` as filters, and what draws a cell."""
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
        inspect.getmembers(numbers, inspect.isfunction),
        counted=counted,
        name=shown_name,
        at=svg.at,
        breakable=breakable,
        coordinate=svg.number,
        prose=prose,
        sentence=sentence,
        with_times=with_times,
    )
    made.globals.update(
        bar=bar, heat=heat, listed=listed, plot_column=plot_column, severities=_SEVERITIES, up_from_zero=up_from_zero
    )
    return made


@functools.cache
def page_style() -> str:
    return "\n".join(read_asset(name) for name in STYLES)


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


def with_times(text: str) -> Markup:
    """Write a sentence such as ``2026-07-14 10:35 to 10:52 UTC``, whose times the script can show in another zone."""
    shown = shown_name(text, LONGEST_SENTENCE).replace(" %", "\N{NO-BREAK SPACE}%")
    parts, done = [], 0
    for found in _TIMES.finditer(shown):
        parts += [escape(shown[done : found.start()]), _times(found)]
        done = found.end()
    return Markup("").join([*parts, escape(shown[done:])])


def _times(found: re.Match[str]) -> Markup:
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
    if value is None:
        return numbers.NOTHING
    if isinstance(value, str) and not isinstance(value, Markup):
        return shown_name(value, LONGEST_SENTENCE)
    return value


def _inline(element: str, code: str) -> Markup:
    for found in (f"</{element}", "<!--", "\r"):
        if found in code.lower():
            raise ValueError(f"the code of the page's {element} holds {found!r}, which ends the element")
    return Markup(code)  # noqa: S704 -- the project's own files, and checked not to end the element


def _policy(style: str, script: str) -> str:
    allowed = f"'{_hash(script)}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src '{_hash(style)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(code: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()


_OF_EVERY_PAGE = ("page/zone.js", "page/copy.js", "page/curves.js")


def joined_script(files: Iterable[str] = ()) -> str:
    """Give the common files and then ``files``, so that no name of theirs is global."""
    code = "\n".join(read_asset(each) for each in (*_OF_EVERY_PAGE, *files))
    return f'(() => {{\n"use strict";\n{code}\n}})();\n'


def read_asset(file: str) -> str:
    return (_ASSETS / file).read_text(encoding="utf-8")
