"""Lets the pages link to any file of the repository, in the built site as on a code host.

A page links to code by its path in the repository, such as ``../infra/config.py``. The site has only what is below
``docs``: every file outside of it that a page links to becomes a page of the site, and the links are bent to it. The
repository's README is the site's first page.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site.reference import KERNELS_PAGE, PAGE, RULES_PAGE, SETTINGS_PAGE, kernel_rules, reference, rules, settings

ROOT = Path(__file__).parents[2]
DOCS = "docs/"
DECISIONS = "docs/decisions"
SOURCE = "source/"
FIRST = {"README.md": "index.md"}

_LANGUAGES = {".py": "python", ".json": "json", ".toml": "toml", ".yml": "yaml", ".sh": "bash"}
_CODE = re.compile(r"(^(?:```|~~~).*?^(?:```|~~~)|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\(\s*<?)([^)\s>#]+)((?:#[^)\s>]*)?>?(?:\s+\"[^\"]*\")?\s*\))")
# Pictures of another host, which the site does not load.
_BADGES = re.compile(r"^\[!\[.*\n", re.MULTILINE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:|/")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the references that are made of the code, and a page for each file outside of ``docs`` that is linked to.

    Files that those link to are pages, too.
    """
    waiting = ["README.md", *(repository_path(file.src_uri) for file in files.documentation_pages())]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if not path.startswith(DOCS):
            files.append(File.generated(config, site_path(path), content=_content(path)))
        if path.endswith(".md"):
            linked = {target for target in _targets(path) if (ROOT / target).is_file() and target not in seen}
            waiting += sorted(target for target in linked if not target.startswith(DOCS))
            seen |= linked
    files.append(File.generated(config, PAGE, content=reference()))
    files.append(File.generated(config, KERNELS_PAGE, content=kernel_rules()))
    files.append(File.generated(config, RULES_PAGE, content=rules()))
    files.append(File.generated(config, SETTINGS_PAGE, content=settings()))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: object) -> str:
    """Bend the links that lead out of ``docs``, or into it, to the pages of the site."""
    own = page.file.src_uri
    path = repository_path(own)
    if not path.endswith(".md"):
        # Who searches the documents looks for words, and every word is somewhere in the code.
        page.meta["search"] = {"exclude": True}
        return markdown

    if path == f"{DECISIONS}/README.md":
        markdown += f"\n{decisions()}"

    def bent(link: str) -> str:
        target = resolved(path, link)
        found = files.get_file_from_path(site_path(target))
        return link if found is None else posixpath.relpath(found.src_uri, posixpath.dirname(own) or ".")

    return with_links(_BADGES.sub("", markdown), bent)


def decisions() -> str:
    """Return a list of the decisions, which a code host shows as the folder's files."""
    pages = sorted((ROOT / DECISIONS).glob("[0-9]*.md"))
    titles = [page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in pages]
    return "".join(f"* [{title}]({page.name})\n" for page, title in zip(pages, titles, strict=True))


def site_path(path: str) -> str:
    """Return where a file of the repository is in the site's sources."""
    if path in FIRST:
        return FIRST[path]
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return SOURCE + (path if path.endswith(".md") else path + ".md")


def repository_path(uri: str) -> str:
    """Return which file of the repository a source of the site is."""
    for path, first in FIRST.items():
        if uri == first:
            return path
    if not uri.startswith(SOURCE):
        return DOCS + uri
    path = uri.removeprefix(SOURCE)
    return path if (ROOT / path).is_file() else path.removesuffix(".md")


def resolved(path: str, link: str) -> str:
    """Return the path in the repository that a relative link in the file ``path`` leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def with_links(markdown: str, change: Callable[[str], str]) -> str:
    """Return Markdown with its relative links changed; what is code stays as it is."""

    def changed(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        return match[0] if _SCHEME.match(link) else before + change(link) + after

    parts = _CODE.split(markdown)
    return "".join(part if index % 2 else _LINK.sub(changed, part) for index, part in enumerate(parts))


def _targets(path: str) -> Iterator[str]:
    for part in _CODE.split((ROOT / path).read_text(encoding="utf-8"))[::2]:
        for _, link, _ in _LINK.findall(part):
            if not _SCHEME.match(link):
                yield resolved(path, link)


def _content(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        return text
    fence = "`" * 8
    language = _LANGUAGES.get(Path(path).suffix, "text")
    return f"# {path}\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"
