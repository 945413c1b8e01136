"""Pages that live outside docs/ (the change log, how to take part, the recorded results), and figures to tap on.

A link such as `../CHANGELOG.md` works where the sources are read, and on the site.
"""

import pathlib
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).parents[2]
OUTSIDE = ("CHANGELOG.md", "CONTRIBUTING.md", "experiments/*.md", "experiments/results/*.png")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, str(path.relative_to(ROOT)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    depth = page.file.src_uri.count("/")
    for start in ("CHANGELOG", "CONTRIBUTING", "experiments/"):
        markdown = markdown.replace(f"]({'../' * (depth + 1)}{start}", f"]({'../' * depth}{start}")
    return markdown


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """A figure leads to itself at full size, if nowhere else: on a phone it is small."""
    pattern = r'(<a [^>]*>)?<img [^>]*src="([^"]+)"[^>]*>'
    return re.sub(pattern, lambda image: image[0] if image[1] else f'<a href="{image[2]}">{image[0]}</a>', html)
