"""SVG as text in which nothing of what is shown can become markup."""

from markupsafe import Markup, escape

from trainguard.render.numbers import shown_name

Attribute = str | float | int | None
TITLE_LIMIT = 240


def element(tag: str, /, *children: Markup, **attributes: Attribute) -> Markup:
    """Return an element; ``class_`` and ``text_anchor`` are written class and text-anchor, None is left out."""
    written = "".join(
        f' {key.removesuffix("_").replace("_", "-")}="{escape(number(value) if isinstance(value, float) else value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    body = f">{''.join(children)}</{tag}>" if children else "/>"
    return Markup(f"<{tag}{written}{body}")  # noqa: S704 -- values are escaped above, children are markup


def text(content: str, **attributes: Attribute) -> Markup:
    return element("text", escape(shown_name(content, TITLE_LIMIT)), **attributes)


def title(content: str) -> Markup:
    """Return the name of the element that it stands in: read by screen readers, shown on hover."""
    return element("title", escape(shown_name(content, TITLE_LIMIT)))


def number(value: float) -> str:
    """Return a coordinate to two decimals, without what is not needed."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def at(share: float) -> str:
    """Return a place on the width of a strip, 0 to 100, as SVG writes it."""
    return f"{number(share)}%"
