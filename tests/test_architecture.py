"""The house rules, as small tests over the syntax tree."""

import ast
import importlib.util
import pathlib

import vertebra

PACKAGE = pathlib.Path(vertebra.__file__).parent

# Where a reader loses the thread: the longest that a file and a function, with its docstring, may be.
MOST_LINES, MOST_LINES_OF_A_FUNCTION = 450, 60

# The storeys from the ground up, and the files of each in order: a file imports only from files before it.
STOREYS = {
    "machine": "later threads devices programs memory checks control file claims checkpoint meeting cluster",
    "tables": "endings nearest marked values counting written column delimited tablefile schema named belonging"
    " weighting folds encoding profile survey parquet partitions sample known passes streamed windows",
    "networks": (
        "parameters keys skeleton activations kernels features priors covariances posteriors divergence blocks "
        "embeddings layer wiring layout stack mixed network build schemes prior_functions"
    ),
    "likelihoods": "quadrature densities in_jax quantiles likelihood continuous discrete survival kept gaussian_rows"
    " working_responses predictive",
    "inference": "objective conjugate rows training arguments curvature density laplace draws settings outcome run"
    " fitting",
    "terms": "term polynomials families curve functions columns ascent evidence dependence sums structure model"
    " sandwich chi_squares sizes level_scores score_test triples choice jumps search linear copula joint sum_of_terms"
    " components splits block shapes latents shaped_latents roughness chosen revision all_rows overconfidence together"
    " substitutes additive group_lasso",
    "effects": "words notebook grid effect pieces regression members decomposition made_of scale_law ensemble posterior"
    " network_posterior",
    "models": "settings capacity transform target rows conformal reading searched scores findings near_copies left_over"
    " diagnostics dependence levels inputs calibration uneven remainder shares noise_choice evaluation refits flexible"
    " networks beside model given explanation remains summary conclusion scale_choice count_choice additive"
    " additive_fits skeleton",
    "files": "outputs params parts networks built posteriors archive onnx tabulated sql peers",
    "plot": "marks tables maps lines effects terms structure explanation fit summary",
    "pages": "words drawings whatif chartdata cases report",
    "estimators": "shown partitioned estimator regressor classifier explanations additive skeleton loading",
    "cli": "tablefile loaded terminal options roles hints answers folder holdout embedded plan fit predict ask look"
    " demo app __main__",
}
# Homes of public names at the top level: those of a storey's, and what is no part of the house.
FRONT = {"activations", "cluster", "distributions", "kernels", "schemes", "stream"}
BESIDE = {"datasets", "metrics", "serving"}
ORDER = [f"{storey}.{name}" for storey, names in STOREYS.items() for name in names.split()]


def room_of(path):
    """A file by its place in the package: machine.threads."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


def imports(path):
    """What a file imports of the package, by its place; inside functions, and later, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "later":
            name = node.args[0].value
            yield from [name.removeprefix("vertebra.")] if name.startswith("vertebra.") else []
        if isinstance(node, ast.Import):
            yield from (a.name.removeprefix("vertebra.") for a in node.names if a.name.startswith("vertebra."))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "vertebra":
            home = node.module.removeprefix("vertebra").lstrip(".")
            for name in (a.name for a in node.names):
                inside = f"{home}.{name}".lstrip(".")
                yield inside if is_room(inside) else home


def is_room(name):
    place = PACKAGE.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_every_file_has_its_place():
    rooms = {room_of(path) for path in PACKAGE.rglob("*.py")}
    assert rooms == {*ORDER, *FRONT, *BESIDE, "__init__", *(f"{storey}.__init__" for storey in STOREYS)}


def test_imports_point_one_way():
    height = {room: k for k, room in enumerate(ORDER)}
    # a storey by its own name is all of it
    height |= {storey: max(k for room, k in height.items() if room.startswith(f"{storey}.")) for storey in STOREYS}
    height |= {f"{storey}.__init__": height[storey] + 0.5 for storey in STOREYS}
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        if room in FRONT or room == "__init__":
            continue
        for other in imports(path):
            if (other in BESIDE and room not in BESIDE) or (room, other) == ("cli.predict", "stream"):
                continue
            is_below = other in height and room in height and height[other] < height[room]
            assert is_below, f"{room} imports {other}"


def test_no_assert_and_no_postponed_annotations_in_the_package():
    for path in PACKAGE.rglob("*.py"):
        tree = ast.parse(path.read_text())
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), path
        assert not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in ast.walk(tree)), path


def test_every_public_name_has_a_docstring():
    for name in dir(vertebra):
        thing = getattr(vertebra, name)
        if not name.startswith("_") and callable(thing):
            assert thing.__doc__, name


def test_the_picture_is_of_these_imports():
    place = pathlib.Path(__file__).parents[1] / "docs/hooks/storeys.py"
    spec = importlib.util.spec_from_file_location("storeys", place)
    storeys = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(storeys)
    assert storeys.PICTURE.read_text() == storeys.drawn(), "run `python docs/hooks/storeys.py`"


def test_no_file_and_no_function_needs_a_map():
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert text.count("\n") <= MOST_LINES, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert node.end_lineno - node.lineno < MOST_LINES_OF_A_FUNCTION, f"{path}: {node.name}"
