"""What additive estimators tell: which terms are real, how strong, what each adds, and the model for others to use."""

import os

import pandas as pd

from vertebra.estimators.estimator import Estimator, Part
from vertebra.files.onnx import to_onnx
from vertebra.files.tabulated import to_tables
from vertebra.models import explanation
from vertebra.models.settings import TermLike
from vertebra.pages.report import write
from vertebra.tables.schema import TableLike, ValuesLike


class Explanations(Estimator):
    """`effects`, `effect`, `interactions`, `eval_terms` and `explain`; `report`, `to_onnx` and `to_tables`."""

    clusters_: list[tuple[str, ...]] = Part(lambda model: model.clusters)  # type: ignore[assignment]

    def effects(
        self, order: int | None = None, level: float = 0.95, *, baseline: TableLike = None, output: int = 0
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
        return explanation.effects(self._fitted(), order, level, baseline=baseline, output=output)

    def interactions(
        self, fdr: float = 0.05, *, level: float = 0.95, baseline: TableLike = None, output: int = 0
    ) -> pd.DataFrame:
        """The rows of `effects` of order 2 and more whose expected share of false ones is at most `fdr`.

        Without the term of all inputs, which stands for what no interaction of few inputs explains.

        >>> model.interactions(fdr=0.05)["term"].tolist()
        [('x0', 'x1')]
        """
        return explanation.interactions(self._fitted(), fdr, level=level, baseline=baseline, output=output)

    def effect(
        self,
        term: TermLike,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        baseline: TableLike = None,
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
            Values per numeric input; by default 50, 20 or 8 for 1, 2 or 3 inputs. A category shows all its levels, a
            discrete number (few distinct values: codes, counts, hours) its values and nothing between; the names of
            such inputs are in `attrs["discrete"]`. Of a single input, the effect of its missing values stands last,
            where there were any.
        """
        return explanation.effect(
            self._fitted(), term, level, simultaneous=simultaneous, baseline=baseline, output=output, points=points
        )

    def eval_terms(self, X: TableLike, *, baseline: TableLike = None, output: int = 0) -> pd.DataFrame:
        """What each term adds to each prediction on the link scale; the columns, with `intercept`, sum to it.

        >>> terms = model.eval_terms(data.x)
        >>> np.allclose(terms.sum(axis=1), model.predict_f(data.x)[0])
        True
        """
        return explanation.eval_terms(self._fitted(), X, baseline=baseline, output=output)

    def explain(
        self, row: TableLike, level: float = 0.95, *, baseline: TableLike = None, output: int = 0
    ) -> pd.DataFrame:
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
        return explanation.explain(self._fitted(), row, level, baseline=baseline, output=output)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as an ONNX file: mean, sd and every term as named outputs (needs `vertebra[onnx]`).

        >>> import onnxruntime
        >>> model.to_onnx("model.onnx")
        >>> [output.name for output in onnxruntime.InferenceSession("model.onnx").get_outputs()][:2]
        ['mean', 'sd']
        """
        to_onnx(self._fitted(), path)

    def to_tables(self, path: str | os.PathLike[str]) -> None:
        """Writes the mean of f as plain tables (.npz), which `vertebra.serving` predicts from with NumPy alone.

        >>> model.to_tables("model.npz")
        >>> vb.serving.load("model.npz").predict_f(data.x).shape
        (400,)
        """
        to_tables(self._fitted(), path)

    def report(self, path: str | os.PathLike[str], X: TableLike = None, y: ValuesLike = None) -> None:
        """Writes one self-contained HTML page: the answer, effects, accuracy, and a panel to try inputs in.

        Accuracy is that on `X`, `y`, rows that were not fitted, where they are given; else on the rows of the fit, each
        left out in turn. Needs `vertebra[report]`.

        >>> model.report("report.html")
        >>> with open("report.html", encoding="utf-8") as page:
        ...     "x3" in page.read()
        True
        """
        model = self._fitted()
        if (X is None) != (y is None):
            raise ValueError("`X` and `y` must be given together, or neither.")
        evaluation = model.evaluation if X is None else self.evaluate(X, y)  # type: ignore[attr-defined]
        write(model, evaluation, self._asked(), path)

    def _all_effects(self) -> pd.DataFrame | None:
        return self.effects()
