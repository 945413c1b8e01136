"""Which code a study exercises, and a digest of it that words do not change: comments, docstrings and blank lines.

A study exercises the files of the package that it imports, and those that they import. `vb.name` counts as the file
that `name` comes from; where `vb` itself is handed on, all files count. Files that only show what was found count only
where a study imports them itself: no figure is another one by how it is drawn.
"""

import ast
import contextlib
import functools
import hashlib
import io
import pathlib
import textwrap
import tokenize
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[1]
# Packages that show, which what computes imports too: an estimator can draw and report itself.
SHOWN = ("plot", "pages", "cli", "effects/notebook.py", "models/summary.py")
# What runs studies, keeps and prints their figures: none depends on it.
BESIDE = {"runner.py", "render.py", "quote.py", "stamps.py", "code_of.py", "reproduce.py", "record.py", "run.py"}


def digest_of(study: pathlib.Path, package: pathlib.Path = ROOT / "src/vertebra") -> str:
    """A digest of the code of the study and of all that it exercises."""
    total = hashlib.sha256()
    for path in files_of(study, package):
        name = path.relative_to(package) if path.is_relative_to(package) else path.name
        total.update(f"{pathlib.PurePath(name).as_posix()}\n{_code(path, path.stat().st_mtime_ns)}\n".encode())
    return total.hexdigest()


def files_of(study: pathlib.Path, package: pathlib.Path = ROOT / "src/vertebra") -> list[pathlib.Path]:
    """The study, the files beside it that it imports, and those of the package, in the order of their names."""
    found, left = {study.resolve()}, [study.resolve()]
    package = package.resolve()
    while left:
        path = left.pop()
        shows = not path.is_relative_to(package) or _is_shown(path, package)
        for other in _imported(path, package, path.stat().st_mtime_ns):
            if other not in found and (shows or not _is_shown(other, package)):
                found.add(other)
                left.append(other)
    return sorted(found)


def _is_shown(path: pathlib.Path, package: pathlib.Path) -> bool:
    return path.is_relative_to(package) and path.relative_to(package).as_posix().startswith(SHOWN)


@functools.cache
def _imported(path: pathlib.Path, package: pathlib.Path, _changed: int) -> frozenset[pathlib.Path]:
    return frozenset(_imports(path, package))


def _imports(path: pathlib.Path, package: pathlib.Path) -> Iterator[pathlib.Path]:
    """The files that a file imports, inside functions too."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    if not path.is_relative_to(package):
        nodes += list(_handed_over(nodes))
    aliases = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _beside(path, alias.name)
                if alias.name == "vertebra":
                    aliases.add(alias.asname or "vertebra")
                elif alias.name.startswith("vertebra."):
                    yield from _at(package, alias.name.split(".")[1:])
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from _beside(path, node.module)
            if node.module.split(".")[0] == "vertebra":
                for alias in node.names:
                    yield from _named(package, [*node.module.split(".")[1:], alias.name])
    bases = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield from _named(package, [node.attr])
        elif isinstance(node, ast.Name) and node.id in aliases and id(node) not in bases:
            yield from sorted(package.rglob("*.py"))  # handed on: by what name it is asked, nobody can tell


def _handed_over(nodes: list[ast.AST]) -> Iterator[ast.AST]:
    """The code in texts of a study, which other processes run."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import vertebra" in node.value:
            with contextlib.suppress(SyntaxError):
                yield from ast.walk(ast.parse(textwrap.dedent(node.value)))


def _beside(path: pathlib.Path, module: str) -> Iterator[pathlib.Path]:
    other = path.with_name(f"{module}.py")
    if other.is_file() and other.name not in BESIDE:
        yield other


def _named(package: pathlib.Path, parts: list[str]) -> Iterator[pathlib.Path]:
    """The files of a module, or of a name in one; a name of the package itself is what `__init__` says it is."""
    if len(parts) == 1 and parts[0] in (homes := _homes(package / "__init__.py")):
        yield from _at(package, homes[parts[0]].split("."))
    elif files := list(_at(package, parts)):
        yield from files
    elif len(parts) > 1:
        yield from _at(package, parts[:-1])


def _at(package: pathlib.Path, parts: list[str]) -> Iterator[pathlib.Path]:
    """The file of a module and, as Python runs them first, those of the packages around it; not the front door's."""
    place = package.joinpath(*parts)
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if file.is_file():
        yield file
        yield from (
            package.joinpath(*parts[:k], "__init__.py")
            for k in range(1, len(parts))
            if package.joinpath(*parts[:k], "__init__.py").is_file()
        )


@functools.cache
def _homes(front: pathlib.Path) -> dict[str, str]:
    """The file of each public name, as the front door has them."""
    for node in ast.parse(front.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "_NAMES":
            return {name: home for home, names in ast.literal_eval(node.value).items() for name in names}
    return {}


@functools.cache
def _code(path: pathlib.Path, _changed: int) -> str:
    """The text of a file without its words. Text and no tree: a tree reads otherwise from one Python to the next."""
    return without_words(path.read_text(encoding="utf-8"))


def without_words(text: str) -> str:
    """Code without comments, docstrings, blank lines and blanks at the end of a line."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                for k in range(first.lineno - 1, first.end_lineno or first.lineno):
                    lines[k] = "\n"
    for token in tokenize.generate_tokens(io.StringIO("".join(lines)).readline):
        if token.type == tokenize.COMMENT:
            row, start = token.start
            lines[row - 1] = lines[row - 1][:start] + "\n"
    return "\n".join(line.rstrip() for line in lines if line.strip())
