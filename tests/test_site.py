"""The site builds without a warning, every public name has a page, and links lead where they say."""

import html.parser
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

import vertebra as vb

ROOT = pathlib.Path(__file__).parents[1]
MODULES = (
    "activations",
    "datasets",
    "distributions",
    "kernels",
    "likelihoods",
    "metrics",
    "plot",
    "schemes",
    "serving",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="the site is built by mkdocs: pip install 'vertebra[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # of a theme's future, not of these pages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.alone = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids.add(given.get("id") or given.get("name"))
        self.links += [given[key] for key in ("href", "src") if given.get(key)]
        if tag == "img" and not given.get("alt"):
            self.alone.append(given["src"])


def documented():
    """Names with an entry; a module stands there for its words alone."""
    pages = "\n".join(path.read_text() for path in (ROOT / "docs/api").glob("*.md"))
    return {name for name in re.findall(r"(?m)^::: (\S+)$", pages) if name.count(".") > 1}


def test_every_public_name_has_a_page():
    pages = documented()
    found = {}
    for module in MODULES:
        said = getattr(getattr(vb, module), "__all__", None)
        for name, thing in vars(getattr(vb, module)).items():
            is_own = name in said if said else getattr(thing, "__module__", None) == f"vertebra.{module}"
            if is_own and not name.startswith("_") and getattr(thing, "__name__", None) == name:
                found[f"vertebra.{module}.{name}"] = thing
    for home, own in vb._NAMES.items():
        # what a public module has is on its page
        others = [name for name in own if not any(getattr(vb, name) is thing for thing in found.values())]
        found |= {f"vertebra.{home}.{name}": getattr(vb, name) for name in others}
    assert found.keys() <= pages, sorted(found.keys() - pages)


def test_the_index_of_names_has_all_that_have_a_page():
    index = (ROOT / "docs/api/index.md").read_text()
    assert {link.partition("#")[2] for link in re.findall(r"\]\(([^)]+)\)", index) if "#" in link} == documented()


@pytest.mark.slow
def test_links_and_figures_lead_somewhere(site):
    pages = {path: Page(path.read_text()) for path in site.rglob("*.html")}
    assert len(pages) > 40
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are from the root
        for link in page.links:
            where = urllib.parse.urlsplit(link)
            if where.scheme or where.netloc:
                continue
            target = (path.parent / urllib.parse.unquote(where.path)).resolve() if where.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = urllib.parse.unquote(where.fragment)
            is_there = target.is_file() and (not anchor or target not in pages or anchor in pages[target].ids)
            if not is_there:
                broken.append((str(path.relative_to(site)), link))
        assert not page.alone, f"{path}: {page.alone} say nothing to those who do not see them"
    assert not broken


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere(site):
    for path in site.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|img)[^>]+src="(https?:[^"]+)"|<link[^>]+rel="stylesheet"[^>]+href="(https?:[^"]+)"',
            path.read_text(),
        )
        assert not loaded, (path, loaded)


@pytest.mark.slow
def test_examples_in_docstrings_are_shown_as_code(site):
    text = (site / "api/estimators/index.html").read_text()
    assert "&gt;&gt;&gt;" in text
    assert "<blockquote>" not in text
