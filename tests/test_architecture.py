"""The house rules, as small tests over the syntax tree."""

import ast
import pathlib

import vertebra

PACKAGE = pathlib.Path(vertebra.__file__).parent

# Rooms from the ground up: a room may import only from rooms before it.
ROOMS = [
    {"parameters", "noise", "skeleton", "metrics", "datasets", "activations", "polynomials", "column", "storage"}
    | {"control", "diagnostics", "labels", "serving", "meeting", "devices", "outputs", "threads", "weighting", "folds"}
    | {"claims"},
    {"encoding", "distributions", "kernels", "systems", "profile", "display", "table", "checkpoint", "cluster"},
    {"likelihoods", "blocks", "evidence", "survey", "parquet"},
    {"network", "sums", "terms", "working", "predictive"},
    {"structure", "passes"},
    {"schemes", "objective", "conjugate", "prior", "anova", "addnn", "evaluation", "calibration", "windows"},
    {"training", "sparsity", "remainder", "stream"},
    {"inference"},
    {"surface"},
    {"tabular"},
    {"prediction", "explanation", "fitting"},
    {"estimators"},
    {"archive", "export", "compact", "whatif", "plot", "chartdata"},
    {"report"},
    {"tablefile", "terminal"},
    {"roles", "answers"},
    {"holdout", "demo"},
    {"cli"},
]
# A method may reach for a room above its own: a model saves, exports and reports itself.
WITHIN_METHODS = {
    ("tabular", "archive"),
    ("explanation", "export"),
    ("explanation", "compact"),
    ("explanation", "report"),
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "vertebra":
            yield from ((a.name, node) for a in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("vertebra"):
            yield node.module.removeprefix("vertebra").lstrip(".").split(".")[0], node
        if isinstance(node, ast.Import):
            yield from ((a.name.split(".")[1], node) for a in node.names if a.name.startswith("vertebra."))


def test_imports_point_one_way():
    level = {room: height for height, rooms in enumerate(ROOMS) for room in rooms}
    rooms = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__"}
    assert rooms == set(level), "every module has its place in ROOMS"
    for room in rooms:
        for other, _ in imports(PACKAGE / f"{room}.py"):
            assert level[other] < level[room] or (room, other) in WITHIN_METHODS, f"{room} imports {other}"


def test_no_assert_and_no_postponed_annotations_in_the_package():
    for path in PACKAGE.glob("*.py"):
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), path
        assert not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in ast.walk(tree)), path


def test_every_public_name_has_a_docstring():
    for name in dir(vertebra):
        thing = getattr(vertebra, name)
        if not name.startswith("_") and callable(thing):
            assert thing.__doc__, name
