"""What an additive model knows: which terms are real, how strong, and what each adds, in the user's names and units."""

import numbers
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import ndtri

from vertebra.effects.posterior import HybridSurface, NetworkSurface, TermSurface
from vertebra.estimators.reading import TableEstimator
from vertebra.likelihoods import Likelihood
from vertebra.machine.checks import check_level
from vertebra.tables.schema import date
from vertebra.terms.search import Structure, discoveries, probabilities
from vertebra.terms.term import MOST_NAMED, Term

# Values shown per numeric input, by the order of the term.
N_SHOWN = {1: 50, 2: 20, 3: 8}


class Explanations(TableEstimator):
    """`effects`, `effect`, `interactions` and `eval_terms` of a fitted additive estimator."""

    _surface: TermSurface | NetworkSurface | HybridSurface
    clusters_: list[tuple[str, ...]]
    _structures: tuple[Structure, ...]
    _likelihood: Likelihood
    _known: dict[tuple, dict[Term, np.ndarray]]

    def effects(
        self, order: int | None = None, level: float = 0.95, *, baseline: Any = None, output: int = 0
    ) -> pd.DataFrame:
        """Every term found, strongest first.

        >>> model.effects()["term"][0]
        ('x3',)
        >>> model.effects(order=2)["term"].tolist()
        [('x0', 'x1')]

        Parameters
        ----------
        order : int, optional
            Only terms of this order.
        level : float
            Of the intervals `lower`, `upper` of the strength.
        baseline : row, optional
            The paper's δ(x⁰): effects as differences from this row.
        output : int
            Which target, or which class.

        Returns
        -------
        DataFrame
            Columns term (tuple of names), order, strength (‖I_T‖ on the link scale: the units of y, of the logit for
            classes, of the log of the rate for counts), sd, lower, upper, sobol (share of the variance of f),
            probability (that the term is real). Where terms of few inputs leave something out that networks could
            learn, a term of all inputs stands for it, what the networks say otherwise; its strength is the root of the
            squared error that it takes off rows left out, and shares are then of the sum of all squared strengths.
        """
        strengths = self._strengths(baseline, output)
        check_level(level)
        unit = self._unit(output)
        # Var f under the product measure is the sum of the squared strengths, draw by draw.
        variance = sum((s**2 for s in strengths.values()), start=np.zeros(()))
        real = probabilities(self._structures[self._latent(output)])
        if isinstance(self._surface, HybridSurface):
            real[self._surface.everything] = float(self._surface.probability[self._latent(output)])
        tails = [50.0 * (1.0 - level), 50.0 * (1.0 + level)]
        rows = []
        for term, draws in strengths.items():
            if order is None or len(term) == order:
                low, high = np.percentile(draws, tails)
                rows.append(
                    {
                        "term": self._named(term),
                        "order": len(term),
                        "strength": unit * float(draws.mean()),
                        "sd": unit * float(draws.std()),
                        "lower": unit * float(low),
                        "upper": unit * float(high),
                        "sobol": float(np.mean(draws**2 / np.maximum(variance, 1e-300))),
                        "probability": real.get(term, 0.0),
                    }
                )
        columns = ["term", "order", "strength", "sd", "lower", "upper", "sobol", "probability"]
        return pd.DataFrame(rows, columns=columns).sort_values("strength", ascending=False, ignore_index=True)

    def interactions(
        self, fdr: float = 0.05, *, level: float = 0.95, baseline: Any = None, output: int = 0
    ) -> pd.DataFrame:
        """The rows of `effects` of order 2 and more whose expected share of false ones is at most `fdr`.

        Without the term of all inputs, which stands for what no interaction of few inputs explains.

        >>> model.interactions(fdr=0.05)["term"].tolist()
        [('x0', 'x1')]
        """
        table = self.effects(level=level, baseline=baseline, output=output)
        if not 0.0 < fdr < 1.0:
            raise ValueError(f"`fdr` must be between 0 and 1, got {fdr!r}.")
        kept = {self._named(term) for term in discoveries(self._structures[self._latent(output)], fdr)}
        return table.loc[np.array([term in kept for term in table["term"]], dtype=bool)].reset_index(drop=True)

    def effect(
        self,
        term: Any,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        baseline: Any = None,
        output: int = 0,
        points: int | None = None,
    ) -> pd.DataFrame:
        """One term as a function of its inputs, in their units and levels: mean, sd and a band of f, not of y.

        >>> effect = model.effect(("x0", "x1"), points=5, simultaneous=True)
        >>> list(effect), len(effect)
        (['x0', 'x1', 'mean', 'sd', 'lower', 'upper'], 25)

        Parameters
        ----------
        term : name or tuple of names (or positions)
        level, simultaneous
            Of the band: for each point, or for the whole function at once.
        points : int, optional
            Values per numeric input; by default 50, 20 or 8 for 1, 2 or 3 inputs. A category shows all its levels. Of
            a single input, the effect of its missing values stands last, where there were any.
        """
        found = self._strengths(baseline, output)
        check_level(level)
        wanted = self._term(term)
        if wanted not in found:
            raise ValueError(
                f"`term` {self._named(wanted)} is not in the model: its effect is 0. The terms are in `effects()`."
            )
        if isinstance(self._surface, HybridSurface) and wanted == self._surface.everything:
            raise ValueError(
                "`term` must be one of few inputs to be shown as a function of them, got the one of all inputs: "
                "`eval_terms` has what it adds to each row."
            )
        shown = N_SHOWN.get(len(wanted), 5) if points is None else points
        grids = np.meshgrid(*[self._values(i, shown, missing=len(wanted) == 1) for i in wanted], indexing="ij")
        coded = np.full((grids[0].size, len(self.schema_.columns)), np.nan)
        for i, grid in zip(wanted, grids, strict=True):
            coded[:, i] = grid.ravel()
        x = self._encoding(coded)
        curve = self._surface.curve(wanted, [x[:, i] for i in wanted], self._latent(output), self._baseline(baseline))
        low, high = curve.band(level, simultaneous=simultaneous)
        unit = self._unit(output)
        columns = [pd.Series(self._shown(i, coded[:, i]), name=self._names()[i]) for i in wanted]
        for name, values in (("mean", curve.mean), ("sd", curve.sd), ("lower", low), ("upper", high)):
            columns.append(pd.Series(unit * values, name=name))
        # side by side and not by name: an input may be called "mean"
        return pd.concat(columns, axis=1)

    def eval_terms(self, X: Any, *, baseline: Any = None, output: int = 0) -> pd.DataFrame:
        """What each term adds to each prediction on the link scale; the columns, with `intercept`, sum to it.

        >>> terms = model.eval_terms(data.x)
        >>> np.allclose(terms.sum(axis=1), model.predict_f(data.x)[0])
        True
        """
        x = self._x(X)
        local = self._surface.local(x, self._latent(output), self._baseline(baseline))
        unit = self._unit(output)
        table: dict[Any, Any] = {"intercept": self._origin(output) + unit * local.pop(()).mean}
        for term in sorted(local, key=lambda t: (len(t), t)):
            table[self._named(term)] = unit * local[term].mean
        # A frame whose columns are tuples would take them for levels.
        return pd.DataFrame(np.stack(list(table.values()), axis=1), columns=pd.Index(list(table), tupleize_cols=False))

    def explain(self, row: Any, level: float = 0.95, *, baseline: Any = None, output: int = 0) -> pd.DataFrame:
        """One prediction taken apart on the link scale: the intercept, then what each term adds, largest first.

        >>> parts = model.explain(data.x[0])
        >>> parts["term"][0], np.allclose(parts["mean"].sum(), model.predict_f(data.x[:1])[0])
        ((), True)

        Parameters
        ----------
        row : one row
            A frame of one row, a series, a dict by name, or as many values as there are columns.

        Returns
        -------
        DataFrame
            Columns term (tuple of names), value (of its inputs, as text; of many none), mean, sd, lower, upper: a band
            of f for each term by itself. The means sum to the prediction.
        """
        self._check_fitted()
        check_level(level)
        coded = self.schema_.matrix(_one_row(row, "row", self.n_features_in_), type(self).__name__)
        latent, anchor = self._latent(output), self._baseline(baseline)
        local = self._surface.local(self._encoding(coded), latent, anchor, with_sd=True)
        unit, width = self._unit(output), float(ndtri(0.5 + 0.5 * level))
        rows = []
        for term in sorted(local, key=lambda t: (len(t) > 0, -abs(local[t].mean[0]))):
            mean, sd = unit * float(local[term].mean[0]), unit * float(local[term].sd[0])
            mean += 0.0 if term else self._origin(output)
            named = term if len(term) <= MOST_NAMED else ()
            shown = [f"{self._names()[i]} = {self._text(i, coded[0, i])}" for i in named]
            rows.append((self._named(term), ", ".join(shown), mean, sd, mean - width * sd, mean + width * sd))
        return pd.DataFrame(rows, columns=["term", "value", "mean", "sd", "lower", "upper"])

    def to_onnx(self, path: Any) -> None:
        """Writes the model as an ONNX file: mean, sd and every term as named outputs (needs `vertebra[onnx]`).

        >>> import onnxruntime
        >>> model.to_onnx("model.onnx")
        >>> [output.name for output in onnxruntime.InferenceSession("model.onnx").get_outputs()][:2]
        ['mean', 'sd']
        """
        from vertebra.files.onnx import to_onnx

        to_onnx(self, path)

    def to_tables(self, path: Any) -> None:
        """Writes the mean of f as plain tables (.npz), which `vertebra.serving` predicts from with NumPy alone.

        >>> model.to_tables("model.npz")
        >>> vb.serving.load("model.npz").predict_f(data.x).shape
        (400,)
        """
        from vertebra.files.tabulated import to_tables

        to_tables(self, path)

    def report(self, path: Any, X: Any = None, y: Any = None) -> None:
        """Writes one self-contained HTML page: the answer, effects, accuracy, and a panel to try inputs in.

        Accuracy is that on `X`, `y`, rows that were not fitted, where they are given; else on the rows of the fit, each
        left out in turn. Needs `vertebra[report]`.

        >>> model.report("report.html")
        >>> with open("report.html", encoding="utf-8") as page:
        ...     "x3" in page.read()
        True
        """
        from vertebra.pages.report import write

        write(self, path, X, y)

    def _strengths(self, baseline: Any, output: int) -> dict[Term, np.ndarray]:
        """Draws of the strengths of all terms, worked out once."""
        self._check_fitted()
        latent, anchor = self._latent(output), self._baseline(baseline)
        place = (latent, None if anchor is None else tuple(anchor))
        if place not in self._known:
            self._known[place] = self._surface.strengths(latent, anchor)
        return self._known[place]

    def _latent(self, output: int) -> int:
        """The latent function of a target."""
        each = self._likelihood.latent_per_target
        n = self._surface.n_outputs // each
        if not isinstance(output, numbers.Integral) or not 0 <= output < n:
            raise ValueError(f"`output` must be from 0 to {n - 1}, got {output!r}.")
        return int(output) * each

    def _baseline(self, baseline: Any) -> np.ndarray | None:
        if baseline is None:
            return None
        return self._x(_one_row(baseline, "baseline", self.n_features_in_))[0]

    def _values(self, i: int, n_points: int, *, missing: bool) -> Float[np.ndarray, " m"]:
        """Codes of all levels of an input, or numbers over its range, and where asked a missing value."""
        column = self.schema_.columns[i]
        low, high = self._ranges[i]
        values = np.linspace(low, high, n_points)
        if column.levels:
            values = np.arange(low, high + 1.0)
        return np.append(values, np.nan) if missing and column.has_missing else values

    def _shown(self, i: int, values: Float[np.ndarray, " m"]) -> Any:
        column = self.schema_.columns[i]
        return [column.label(code) for code in values] if column.levels else column.original(values)

    def _text(self, i: int, value: float) -> str:
        """A coded value as the user wrote it."""
        column = self.schema_.columns[i]
        if column.levels or np.isnan(value):
            return str(column.label(value))
        number = float(column.original(np.array([value]))[0])
        return date(number) if column.part == "time" else f"{number:.4g}"

    def _named(self, term: Term) -> tuple[str, ...]:
        names = self._names()
        return tuple(names[i] for i in term)

    def _term(self, term: Any) -> Term:
        parts = (term,) if isinstance(term, str | numbers.Integral) else tuple(term)
        return tuple(sorted({self._position(part) for part in parts}))

    def _unit(self, output: int) -> float:
        return 1.0

    def _origin(self, output: int) -> float:
        return 0.0


def _one_row(row: Any, argument: str, n_columns: int) -> Any:
    """A table of one row."""
    if isinstance(row, pd.Series):
        row = row.to_frame().T.infer_objects()
    elif isinstance(row, dict):
        row = pd.DataFrame([row])
    elif not hasattr(row, "columns"):
        values = np.asarray(row, dtype=object)
        if values.shape not in ((n_columns,), (1, n_columns)):
            raise ValueError(f"`{argument}` must be one row of {n_columns} values, got {row!r}.")
        row = values.reshape(1, -1)
    if len(row) != 1:
        raise ValueError(f"`{argument}` must be one row, got {len(row)}.")
    return row
