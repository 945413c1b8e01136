"""Draws the storeys of the package, and which imports from which: `python docs/hooks/storeys.py`.

The order is that of tests/test_architecture.py, which holds the files to it, and compares the picture with the imports.
"""

import ast
import pathlib
import sys
from collections import Counter
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).parents[2]
PICTURE = ROOT / "docs/images/storeys.svg"
# Sizes in pixels: of a storey, of its name, of what it is, and of a column of dots.
HEIGHT, NAME, WORDS, COLUMN = 44, 130, 640, 30


def imported(storeys, imports, room_of, package):
    """How many files of each storey import from each other one."""
    found = Counter()
    for path in package.rglob("*.py"):
        storey = room_of(path).split(".")[0]
        others = {other.split(".")[0] for other in imports(path)}
        found.update((storey, other) for other in others if storey in storeys and other in storeys and other != storey)
    return found


def picture(storeys, found, package) -> str:
    """The storeys, the ground floor last; a dot where one imports from another, larger for more files."""
    names = list(storeys)
    width, height = NAME + WORDS + COLUMN * (len(names) - 1) + 50, HEIGHT * len(names) + 100
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for k, name in enumerate(names):
        top = HEIGHT * (len(names) - 1 - k)
        words = ast.get_docstring(ast.parse((package / name / "__init__.py").read_text())).split("\n")[0]
        parts += [
            f'<rect x="6" y="{top + 6}" width="{width - 12}" height="{HEIGHT - 6}" rx="5" fill="#eef4fa"/>',
            f'<text x="18" y="{top + 31}" font-size="17" font-weight="bold" fill="#0072B2">{name}</text>',
            f'<text x="{NAME + 6}" y="{top + 30}" font-size="12.5" fill="#333333">{escape(words)}</text>',
        ]
        for j, other in enumerate(names[:k]):
            x, y = NAME + WORDS + COLUMN * j + COLUMN / 2, top + HEIGHT / 2 + 3
            if n := found[name, other]:
                parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="{min(3 + n, 11)}" fill="#E69F00"/>')
                parts.append(
                    f'<text x="{x:g}" y="{y + 4:g}" font-size="10" text-anchor="middle" fill="#222">{n}</text>'
                )
            else:
                parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="1.5" fill="#b8c4d0"/>')
    for j, name in enumerate(names[:-1]):
        x, y = NAME + WORDS + COLUMN * j + COLUMN / 2 + 4, HEIGHT * len(names) + 12
        parts.append(f'<text transform="translate({x:g},{y}) rotate(60)" font-size="12.5" fill="#333333">{name}</text>')
    below = "A number: how many files of the storey import from the one below it that the column names."
    parts.append(f'<text x="18" y="{height - 40}" font-size="12.5" fill="#555555">{below}</text>')
    return "\n".join([*parts, "</svg>", ""])


def drawn() -> str:
    """The picture of the package as it is."""
    sys.path.insert(0, str(ROOT / "tests"))
    import test_architecture as house

    found = imported(house.STOREYS, house.imports, house.room_of, house.PACKAGE)
    return picture(house.STOREYS, found, house.PACKAGE)


if __name__ == "__main__":
    PICTURE.write_text(drawn())
