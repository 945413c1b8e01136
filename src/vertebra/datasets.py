"""Synthetic functions on (0, 1]^p whose ANOVA is known: the paper's f1–f4, purely additive ones, and classics.

Each is a sum of parts, functions of few inputs. Their components and strengths are computed by quadrature. And readers
of well-known tables, whole or in their standard splits.

>>> data = vb.datasets.synthetic("f1", n=500)
>>> data.x.shape, data.y.shape
((500, 10), (500,))
>>> vb.datasets.f1.interactions
((0, 1),)
"""

import itertools
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
from jaxtyping import Float
from pandas.api.types import is_numeric_dtype
from scipy.special import ndtr
from sklearn.datasets import fetch_california_housing, fetch_openml
from sklearn.utils import Bunch

Term = tuple[int, ...]


class Synthetic(NamedTuple):
    """Rows of one synthetic function: inputs, noisy targets, and the function itself.

    >>> x, y, f = vb.datasets.synthetic("ishigami", noise=0.5)
    >>> float(np.std(y - f).round(1))
    0.5
    """

    x: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, " n"]
    f: Float[np.ndarray, " n"]


class Part(NamedTuple):
    """g(x_T): a function of some inputs, called with one array for each.

    >>> wave = vb.datasets.Part((2,), lambda a: np.sin(6 * a))
    >>> wave.function(np.zeros(3))
    array([0., 0., 0.])
    """

    term: Term
    function: Callable[..., np.ndarray]


class SumOfParts(NamedTuple):
    """f(x) = Σ g_j(x_{T_j}) on (0, 1]^p. `undecidable` are parts too weak for any method at n = 5000.

    >>> f = vb.datasets.SumOfParts(2, (vb.datasets.Part((0, 1), lambda a, b: a * b**2),))
    >>> f(np.array([[1.0, 0.5]]))
    array([0.25])
    >>> {term: round(strength, 3) for term, strength in f.strengths().items()}
    {(1,): 0.149, (0,): 0.096, (0, 1): 0.086}
    """

    n_inputs: int
    parts: tuple[Part, ...]
    undecidable: tuple[Term, ...] = ()

    def __call__(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, " n"]:
        return sum((part.function(*(x[:, i] for i in part.term)) for part in self.parts), start=np.zeros(len(x)))

    def components(
        self, points: Mapping[int, np.ndarray] | None = None, weights: Mapping[int, np.ndarray] | None = None
    ) -> dict[Term, np.ndarray]:
        """Every I_T on a grid, under a measure of points and weights per input: Gauss–Legendre for the uniform law."""
        if points is None or weights is None:
            # 60 nodes: the slowest part, arcsin(x9 x10) with its corner at (1, 1), to 1e-5
            nodes, each = np.polynomial.legendre.leggauss(60)
            points = dict.fromkeys(range(self.n_inputs), 0.5 * (nodes + 1.0))
            weights = dict.fromkeys(range(self.n_inputs), 0.5 * each)
        total: dict[Term, np.ndarray] = {}
        for term, function in self.parts:
            whole = function(*np.meshgrid(*(points[i] for i in term), indexing="ij"))
            for size in range(len(term) + 1):
                for kept in itertools.combinations(term, size):
                    component = whole
                    for axis, i in enumerate(term):
                        shape = [-1 if a == axis else 1 for a in range(len(term))]
                        mean = np.sum(component * weights[i].reshape(shape), axis=axis, keepdims=True)
                        component = component - mean if i in kept else mean
                    component = component.reshape([len(points[i]) for i in kept])
                    total[kept] = np.asarray(total[kept] + component if kept in total else component)
        return total

    def strengths(self) -> dict[Term, float]:
        """The sd of every component under the uniform law; those below 1e-10 of the largest are zero and left out."""
        _, each = np.polynomial.legendre.leggauss(60)
        result = {}
        for term, component in self.components().items():
            weight = np.ones(())
            for _ in term:
                weight = weight[..., None] * (0.5 * each)
            result[term] = float(np.sqrt(np.sum(weight * component**2)))
        del result[()]
        largest = max(result.values())
        return {term: s for term, s in sorted(result.items(), key=lambda t: -t[1]) if s > 1e-10 * largest}

    @property
    def interactions(self) -> tuple[Term, ...]:
        """The parts of two inputs and more, as the function is written."""
        return tuple(part.term for part in self.parts if len(part.term) > 1)

    @property
    def identifiable(self) -> tuple[Term, ...]:
        """Those that do interact, and can be seen."""
        real = self.strengths()
        return tuple(term for term in self.interactions if term in real and term not in self.undecidable)


def _norm(*x):
    return np.sqrt(sum(each**2 for each in x))


f1 = SumOfParts(
    10,
    (
        Part((0, 1), lambda a, b: 10 * np.sin(np.pi * a * b)),
        Part((2,), lambda a: 20 * (a - 0.5) ** 2),
        Part((3,), lambda a: 10 * a),
        Part((4,), lambda a: 5 * a),
    ),
)
f2 = SumOfParts(
    10,
    (
        Part((0, 1), lambda a, b: 10 * np.exp(a * b)),
        Part((2, 3, 4), lambda a, b, c: -20 * np.cos(a + b + c)),
        Part((8, 9), lambda a, b: 7 * np.arcsin(a * b)),
    ),
)
f3 = SumOfParts(
    10,
    (
        Part((0, 1), lambda a, b: np.exp(np.abs(a * b) + 1)),
        Part((2, 3), lambda a, b: np.exp(np.abs(a + b) + 1)),
        Part((4, 5), lambda a, b: -19 * np.cos(a + b)),
        Part((7, 8, 9), lambda a, b, c: -10 * _norm(a, b, c)),
    ),
)
# On (0, 1] |x6 + x7| is x6 + x7: that part does not interact, whatever the paper says.
f4 = SumOfParts(
    10,
    (
        Part((0, 1, 2), lambda a, b, c: 1 / (1 + a**2 + b**2 + c**2)),
        Part((3, 4), lambda a, b: -5 * np.sqrt(np.exp(a + b))),
        Part((5, 6), lambda a, b: 10 * np.abs(a + b)),
        Part((7, 8, 9), lambda a, b, c: 6 * a * b * c),
    ),
    undecidable=((0, 1, 2),),
)
smooth = SumOfParts(
    10,
    (
        Part((0,), lambda a: 3 * np.sin(2 * np.pi * a)),
        Part((1,), lambda a: 8 * (a - 0.5) ** 2),
        Part((2,), lambda a: 4 * a),
        Part((3,), np.exp),
        Part((4,), lambda a: 2 * np.log(0.1 + a)),
    ),
)
rough = SumOfParts(
    10,
    (
        Part((0,), lambda a: 4 * np.abs(a - 0.4)),
        Part((2,), lambda a: 2.0 * (a > 0.6)),
        Part((5,), lambda a: np.floor(4 * a)),
        Part((7,), lambda a: 3 * np.sqrt(a)),
    ),
)
many = SumOfParts(
    10, tuple(Part((i,), lambda a, i=i: (1 + 0.3 * i) * np.sin((1 + 0.4 * i) * a + i)) for i in range(10))
)
ishigami = SumOfParts(
    10,
    (
        Part((0, 2), lambda a, c: (1 + 0.1 * (np.pi * (2 * c - 1)) ** 4) * np.sin(np.pi * (2 * a - 1))),
        Part((1,), lambda b: 7 * np.sin(np.pi * (2 * b - 1)) ** 2),
    ),
)
parity = SumOfParts(10, (Part((0, 1, 2), lambda a, b, c: 8 * (a - 0.5) * (b - 0.5) * (c - 0.5) * 4),))

FUNCTIONS: dict[str, SumOfParts] = {
    "f1": f1,
    "f2": f2,
    "f3": f3,
    "f4": f4,
    "smooth": smooth,
    "rough": rough,
    "many": many,
    "ishigami": ishigami,
    "parity": parity,
}


def synthetic(
    name: str, n: int = 5000, *, noise: float = 1.0, seed: int = 0, n_inputs: int = 10, correlation: float = 0.0
) -> Synthetic:
    """n rows of one of `FUNCTIONS`: x uniform on (0, 1]^p, y = f(x) + N(0, noise²).

    Inputs beyond the function's own are irrelevant. With `correlation` the inputs are those of a Gaussian copula.

    >>> vb.datasets.synthetic("f2", n=100, n_inputs=20, correlation=0.5).x.shape
    (100, 20)
    """
    if name not in FUNCTIONS:
        raise ValueError(f"`name` must be one of {', '.join(FUNCTIONS)}, got {name!r}.")
    if n < 1 or noise < 0.0:
        raise ValueError(f"`n` must be at least 1 and `noise` not negative, got {n!r} and {noise!r}.")
    function = FUNCTIONS[name]
    if n_inputs < function.n_inputs:
        raise ValueError(f"`n_inputs` must be at least {function.n_inputs}, got {n_inputs!r}.")
    if not 0.0 <= correlation < 1.0:
        raise ValueError(f"`correlation` must be at least 0 and below 1, got {correlation!r}.")
    rng = np.random.default_rng(seed)
    x = 1.0 - rng.random((n, n_inputs))
    if correlation:
        shared = rng.standard_normal((n, 1))
        own = rng.standard_normal((n, n_inputs))
        x = np.clip(ndtr(np.sqrt(correlation) * shared + np.sqrt(1.0 - correlation) * own), 1e-12, 1.0)
    f = function(x)
    return Synthetic(x, f + noise * rng.standard_normal(n), f)


class Split(NamedTuple):
    """One standard split of a benchmark table: frames with the columns of the source, and the target.

    >>> x, y = pd.DataFrame({"size": [50.0, 70.0, 90.0]}), pd.Series([500.0, 700.0, 900.0])
    >>> split = vb.datasets.Split(x[:2], y[:2], x[2:], y[2:])
    >>> len(split.x_train), len(split.x_test)
    (2, 1)
    """

    x_train: pd.DataFrame
    y_train: pd.Series
    x_test: pd.DataFrame
    y_test: pd.Series


def benchmark(folder: str | os.PathLike[str], split: int | str = 0) -> Split:
    """A benchmark table from its folder (`data.csv.gz`, target last, and `splits.npz`).

    `split` is a number, or the name of a pair of arrays such as "official" for `official_train` and `official_test`.

    >>> pd.DataFrame({"size": [50.0, 70.0, 90.0], "rent": [500.0, 700.0, 900.0]}).to_csv("data.csv.gz", index=False)
    >>> np.savez("splits.npz", train=[[0, 1]], test=[[2]])
    >>> vb.datasets.benchmark(".").y_test.tolist()
    [900.0]
    """
    folder = pathlib.Path(folder)
    if not (folder / "data.csv.gz").is_file():
        raise FileNotFoundError(f"`folder` must hold data.csv.gz and splits.npz, got {folder}.")
    table = pd.read_csv(folder / "data.csv.gz")
    with np.load(folder / "splits.npz") as splits:
        if isinstance(split, str):
            train, test = splits[f"{split}_train"], splits[f"{split}_test"]
        else:
            train, test = splits["train"][split], splits["test"][split]
    x, y = table.iloc[:, :-1], table.iloc[:, -1]
    return Split(x.iloc[train], y.iloc[train], x.iloc[test], y.iloc[test])


class Table(NamedTuple):
    """A well-known table: a frame of inputs and the target, row by row.

    >>> x, y = vb.datasets.Table(pd.DataFrame({"size": [50.0, 70.0]}), pd.Series([500.0, 700.0]))
    >>> x.shape, y.shape
    ((2, 1), (2,))
    """

    x: pd.DataFrame
    y: pd.Series


def _frame(fetched: tuple | Bunch) -> pd.DataFrame:
    return cast(Bunch, fetched).frame


# Where each lies in the folder VERTEBRA_DATA, and how else it is had.
TABLES: dict[str, tuple[str, Callable[[], pd.DataFrame]]] = {
    "adult": ("tabular", lambda: _frame(fetch_openml("adult", version=2, as_frame=True))),
    "california_housing": ("tabular", lambda: _frame(fetch_california_housing(as_frame=True))),
    "kin8nm": ("uci", lambda: _frame(fetch_openml("kin8nm", version=1, as_frame=True))),
}


def table(name: str) -> Table:
    """One of `TABLES`, from the folder that the environment variable VERTEBRA_DATA names, or fetched by scikit-learn.

    It is fetched over the network once, and kept in scikit-learn's own folder. Names are the same from both places;
    rows may stand in another order.

    >>> x, y = vb.datasets.table("adult")  # doctest: +SKIP

    - "adult": 48,842 people of the US census of 1994, text and gaps among their 14 columns; y says whether one earns
      more than 50,000 dollars a year.
    - "california_housing": 20,640 districts of 1990; y is the median value of a house, in 100,000 dollars.
    - "kin8nm": 8,192 poses of a robot's arm, simulated; y is how far its hand is from a target.
    """
    if name not in TABLES:
        raise ValueError(f"`name` must be one of {', '.join(TABLES)}, got {name!r}.")
    kind, fetch = TABLES[name]
    if folder := os.environ.get("VERTEBRA_DATA"):
        path = pathlib.Path(folder) / kind / name / "data.csv.gz"
        if not path.is_file():
            raise FileNotFoundError(f"VERTEBRA_DATA must name a folder with {kind}/{name}/data.csv.gz, got {folder}.")
        frame = pd.read_csv(path)
    else:
        frame = fetch()
    x, y = frame.iloc[:, :-1].rename(columns=lambda column: column.replace("-", "_")), frame.iloc[:, -1]
    if name == "adult":
        # "?" here and a gap there
        x = x.apply(lambda column: column if is_numeric_dtype(column) else column.astype(object).where(column != "?"))
        y = ((y == 1) | (y == ">50K")).rename("income_gt_50k")
    return Table(x, y)
