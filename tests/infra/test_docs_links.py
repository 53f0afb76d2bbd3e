"""Links between the documents: every relative link names a file that exists, and every anchor a heading in it."""

import re
from pathlib import Path
from urllib.parse import unquote

from tests.infra.synthesis import ROOT

_FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_NOT_OURS = {".venv", ".tools", ".emulator", "node_modules", "build", "demo-output", ".git"}


def documents() -> list[Path]:
    """Return every Markdown file of the project."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(path for path in found if not set(path.parts) & _NOT_OURS and not path.parts[0].startswith("cdk.out"))


def anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as the usual renderers make them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        unique, number = slug, 0
        while unique in found:
            number += 1
            unique = f"{slug}-{number}"
        found.add(unique)
    return found


def broken_links(document: Path, root: Path) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    text = (root / document).read_text(encoding="utf-8")
    broken = []
    for link in _LINK.findall(_CODE.sub("", _FENCE.sub("", text))):
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (root / document).parent / path if path else root / document
        if not _leads_somewhere(target, anchor, root):
            broken.append(link)
    return broken


def _leads_somewhere(target: Path, anchor: str, root: Path) -> bool:
    if not target.exists() or root not in target.resolve().parents:
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target.read_text(encoding="utf-8"))


def test_each_link_of_the_documents_leads_somewhere() -> None:
    assert {str(each): broken for each in documents() if (broken := broken_links(each, ROOT))} == {}


def test_broken_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A `Heading`, once\n## Twice\n## Twice\n", encoding="utf-8")
    page = "[a](other.md#a-heading-once) [b](other.md#twice-1) [c](missing.md) [d](other.md#no) [e](https://x.y)\n"
    page += "```\n[f](in-a-fence.md)\n```\n`[g](in-code.md)` [h](#top)\n# Top\n"
    (tmp_path / "page.md").write_text(page, encoding="utf-8")
    assert broken_links(Path("page.md"), tmp_path) == ["missing.md", "other.md#no"]


def test_decisions_begin_with_the_number_of_their_file() -> None:
    pages = sorted(path for path in (ROOT / "docs" / "decisions").glob("*.md") if path.name != "README.md")
    assert len(pages) > 40
    for page in pages:
        assert page.read_text(encoding="utf-8").startswith(f"# {int(page.name[:4])}. ")
