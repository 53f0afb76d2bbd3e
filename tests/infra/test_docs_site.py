"""The documents as a site: built strictly, every link leads somewhere, nothing is loaded from another host."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.site import hook
from tests.infra.synthesis import ROOT

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
_FROM_ELSEWHERE = re.compile(r"(?:https?:)?//")


class _Page(HTMLParser):
    """What a page loads, where its links lead, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.anchors.add(str(found["id"]))
        if tag == "a" and found.get("href"):
            self.links.append(str(found["href"]))
        loaded = found.get(_LOADED.get(tag, ""))
        if loaded and found.get("rel") != "canonical":
            self.loads.append(loaded)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    # With --quiet, MkDocs would count no warning, and --strict would let all of them pass.
    assert done.returncode == 0, done.stderr
    assert "Documentation built" in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, _Page]:
    """Return every page of the site."""
    return {str(file.relative_to(site)): _Page(file.read_text("utf-8")) for file in sorted(site.rglob("*.html"))}


def test_each_document_is_a_page_with_the_readme_first(pages: dict[str, _Page]) -> None:
    documents = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {str(path).replace("README", "index") for path in documents}
    assert expected < set(pages)
    assert "index.html" in pages


def test_index_of_the_decisions_links_to_each(pages: dict[str, _Page]) -> None:
    expected = {path.with_suffix(".html").name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")}
    assert expected <= {link.partition("#")[0] for link in pages["decisions/index.html"].links}


def test_site_links_lead_to_files_and_anchors(site: Path, pages: dict[str, _Page]) -> None:
    broken = []
    for name, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or name == "404.html":
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(str(Path(os.path.normpath(target)).relative_to(site)))
            if not target.is_file() or (parts.fragment and known and unquote(parts.fragment) not in known.anchors):
                broken.append(f"{name}: {link}")
    assert broken == []


def test_site_loads_nothing_from_other_hosts(site: Path, pages: dict[str, _Page]) -> None:
    assert [load for page in pages.values() for load in page.loads if _FROM_ELSEWHERE.match(load)] == []
    styles = [file.read_text("utf-8") for file in site.rglob("*.css")]
    assert [url for text in styles for url in re.findall(r"(?:url\(|@import )[\"']?(https?://[^)\"']+)", text)] == []


def test_link_to_code_leads_to_a_page_of_that_code(pages: dict[str, _Page]) -> None:
    assert "source/rules_layer/trainguard/core/ports.py.html" in pages
    assert "source/rules_layer/trainguard/core/ports.py.html" in pages["architecture.html"].links
    assert "costs.html" in pages["index.html"].links


def test_search_index_has_documents_and_no_code(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text("utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    decision = "decisions/0001-the-cursor-decides.html"
    assert {"index.html", "stopping.html", "rules/BatchSize.html", decision} <= found
    assert [place for place in found if place.endswith((".py.html", ".json.html"))] == []


@pytest.mark.parametrize(
    ("path", "site_path"),
    [
        ("README.md", "index.md"),
        ("docs/costs.md", "costs.md"),
        ("docs/rules/README.md", "rules/README.md"),
        ("infra/config.py", "source/infra/config.py.md"),
        ("emulator/README.md", "source/emulator/README.md"),
    ],
)
def test_site_path_of_a_file_leads_back_to_it(path: str, site_path: str) -> None:
    assert hook.site_path(path) == site_path
    assert hook.repository_path(site_path) == path


def test_rewritten_markdown_keeps_code_hosts_and_anchors() -> None:
    text = '[a](b.md#c) `[d](e.md)` [f](https://g.h/i.md) [j](#k) ![l](m.svg "n")\n```\n[o](p.md)\n```\n[q](<r.md>)'
    changed = hook.with_links(text, str.upper)
    assert changed == text.replace("b.md", "B.MD").replace("m.svg", "M.SVG").replace("r.md", "R.MD")
