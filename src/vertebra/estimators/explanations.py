"""What additive estimators tell: which terms are real, how strong, what each adds, and the model for others to use."""

import os
from collections.abc import Sequence
from typing import Any

import pandas as pd

from vertebra.estimators import partitioned
from vertebra.estimators.estimator import Estimator, Part
from vertebra.estimators.shown import terms_of
from vertebra.files.onnx import to_onnx
from vertebra.files.peers import to_arviz, to_interpret, to_shap
from vertebra.files.sql import to_sql
from vertebra.files.tabulated import to_tables
from vertebra.machine.checks import seed_of
from vertebra.models import explanation
from vertebra.models.explanation import MeasureLike
from vertebra.models.remains import remainder_inputs
from vertebra.models.settings import TermLike
from vertebra.pages.cases import CasesLike
from vertebra.pages.report import write
from vertebra.tables.partitions import is_dask
from vertebra.tables.schema import TableLike, ValuesLike


class Explanations(Estimator):
    """Effects and what else a sum of terms tells; `report`, and models, draws and parts for others."""

    clusters_: list[tuple[str, ...]] = Part(lambda model: model.clusters)  # type: ignore[assignment]

    def effects(
        self,
        order: int | None = None,
        level: float = 0.95,
        *,
        baseline: TableLike = None,
        output: int = 0,
        measure: MeasureLike = None,
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
        measure : {"data", "product"}, optional
            What components are averages over: the rows as they are, whose inputs go together, the default; or all
            combinations of the inputs' values, as in the paper, the only one of networks and of files of 0.1.

        Returns
        -------
        DataFrame
            Columns term (tuple of names), order, strength (‖f_T‖ on the link scale: the units of y, of the logit for
            classes, of the log of the rate for counts), sd, lower, upper, sobol (the share again), probability (that
            the term is real); share (Cov(f_T, f)/Var f: all sum to 1), share_lower, share_upper, and its two parts with
            theirs, share_own (Var f_T/Var f, what the term would have by itself) and share_through (what it has through
            others that it goes together with); group. `attrs["copies"]` has the other names of inputs that are read
            once, as they say the same as another. Of inputs that all but copy each other
            only the sum of their terms may be known: then `group` names these terms, strength, sd, lower and upper are
            those of the sum in every row of it, and shares have no limits. Where terms of few inputs leave something
            out that networks could learn, a term of all inputs stands for it, what the networks say otherwise; its
            strength is the root of the squared error that it takes off rows left out, and counts as if it went with no
            other.
        """
        model = self._fitted()
        return terms_of(explanation.effects(model, order, level, baseline=baseline, output=output, measure=measure))

    def totals(self, level: float = 0.95, *, output: int = 0, measure: MeasureLike = None) -> pd.DataFrame:
        """How much of the variance of f each input has a part in, largest first.

        >>> totals = model.totals()
        >>> bool((totals["total"] >= totals["lower"]).all()), "x3" in set(totals["input"])
        (True, True)

        Returns
        -------
        DataFrame
            Columns input, main (the share of its main effect), total (of all terms with it, so that totals sum to more
            than 1 where there are interactions), and of the total sd, lower, upper.
        """
        return explanation.totals(self._fitted(), level, output=output, measure=measure)

    def remainder_inputs(self, *, output: int = 0) -> pd.DataFrame:
        """What the remainder is made of, where there is one: which inputs networks over all of them use.

        >>> model.remainder_inputs()  # terms say all of this model
        Empty DataFrame
        Columns: [input, main, total]
        Index: []

        Returns
        -------
        DataFrame
            Columns input, main (the share of the remainder's variance that is the input's own main effect) and total
            (that of all components with it), by sampling, with inputs drawn independently of each other.
            `attrs["together"]` is how many inputs act together, in the mean over components.
        """
        return remainder_inputs(self._fitted(), output=output)

    def substitutes(self, *, output: int = 0) -> pd.DataFrame:
        """Inputs that nearly copy one that acts, in the model or not, and which of them evidence is for.

        >>> list(model.substitutes())[:4]
        ['input', 'substitute', 'correlation', 'together']

        Returns
        -------
        DataFrame
            Columns input (which acts), substitute, correlation (of their nearest functions), together (the probability
            that one of them acts), and of what they do, summing to 1: input_alone, substitute_alone, both (each by
            itself), product (together as well); group (all that may act in place of the input). The six closest pairs
            at most, and `diagnostics_` says how many more there were; none where terms were given, and none of six
            classes and more.
        """
        return explanation.substitutes(self._fitted(), output=output)

    def candidates(self, order: int | None = None, *, output: int = 0) -> pd.DataFrame:
        """Every term that was tested, found or not, and how strong one that was not found may be at most.

        >>> table = model.candidates(order=2)
        >>> table.loc[0, "term"], bool(table.loc[0, "found"])
        (('x0', 'x1'), True)
        >>> bool(table.loc[~table["found"], "upper"].max() < table.loc[0, "upper"])
        True

        Returns
        -------
        DataFrame
            The clearest first: term, order, found (whether the model has it), p_value (of its test beside the rest of
            the model), q_value (of interactions: the smallest `fdr` at which `interactions` lists it), probability,
            and upper, a 95 % upper limit of its strength: a stronger one would have been seen. It has none (nan)
            where terms were given, where a time budget ended the search, and of six classes and more.
        """
        return terms_of(explanation.candidates(self._fitted(), order, output=output))

    def interactions(
        self,
        fdr: float = 0.05,
        *,
        level: float = 0.95,
        baseline: TableLike = None,
        output: int = 0,
        measure: MeasureLike = None,
    ) -> pd.DataFrame:
        """The rows of `effects` of order 2 and more whose expected share of false ones is at most `fdr`.

        Without the term of all inputs, which stands for what no interaction of few inputs explains. With a large `fdr`
        the list goes beyond the terms of the model, which takes in what is clear: such a term has a strength by its
        test, and no share.

        >>> model.interactions(fdr=0.05)["term"].tolist()
        [('x0', 'x1')]
        """
        model = self._fitted()
        found = explanation.interactions(model, fdr, level=level, baseline=baseline, output=output, measure=measure)
        return terms_of(found)

    def effect(
        self,
        term: TermLike,
        level: float = 0.95,
        simultaneous: bool = False,
        *,
        baseline: TableLike = None,
        output: int = 0,
        points: int | None = None,
        measure: MeasureLike = None,
    ) -> pd.DataFrame:
        """One term as a function of its inputs, in their units and levels: mean, sd and a band of f, not of y.

        >>> effect = model.effect(("x0", "x1"), points=5, simultaneous=True)
        >>> list(effect), len(effect)
        (['x0', 'x1', 'mean', 'sd', 'lower', 'upper'], 25)

        Parameters
        ----------
        term : name or tuple of names (or positions)
            Or as it is printed, "x0 × x1".
        level, simultaneous
            Of the band: for each point, or for the whole function at once.
        points : int, optional
            Values per numeric input; by default 50, 20 or 8 for 1, 2 or 3 inputs. A category shows all its levels, a
            discrete number (few distinct values: codes, counts, hours) its values and nothing between; the names of
            such inputs are in `attrs["discrete"]`. Of a single input, the effect of its missing values stands last,
            where there were any.
        measure : {"data", "product"}, optional
            As in `effects`.
        """
        return explanation.effect(
            self._fitted(),
            term,
            level,
            simultaneous=simultaneous,
            baseline=baseline,
            output=output,
            points=points,
            measure=measure,
        )

    def eval_terms(
        self, X: TableLike, *, baseline: TableLike = None, output: int = 0, measure: MeasureLike = None
    ) -> Any:
        """What each term adds to each prediction on the link scale; the columns, with `intercept`, sum to it.

        Of a `dask.dataframe` a frame of Dask's, whose columns are named by text: `term:size × age`.

        >>> terms = model.eval_terms(data.x)
        >>> np.allclose(terms.sum(axis=1), model.predict_f(data.x)[0])
        True
        """
        if is_dask(X):
            if baseline is not None or measure is not None:
                raise ValueError(
                    "`baseline` and `measure` are for tables in memory: X.map_partitions asks part by part."
                )
            return partitioned.terms(self._fitted(), X, output)
        return explanation.eval_terms(self._fitted(), X, baseline=baseline, output=output, measure=measure)

    def explain(
        self,
        row: TableLike,
        level: float = 0.95,
        *,
        baseline: TableLike = None,
        output: int = 0,
        measure: MeasureLike = None,
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
        model = self._fitted()
        return terms_of(explanation.explain(model, row, level, baseline=baseline, output=output, measure=measure))

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

    def to_sql(self, table: str, *, keep: Sequence[str] = (), dialect: str = "duckdb") -> str:
        """One query that predicts every row of a table in a database: f on the link scale, as `predict_f` has it.

        >>> query = model.to_sql("measurements", keep=["id"])
        >>> query.startswith("WITH vertebra_read AS"), query.endswith("FROM vertebra_functions")
        (True, True)

        Parameters
        ----------
        table : str
            As the query is to write it: a name, or a query in brackets. Its columns are those of the fit; numbers may
            be NULL or NaN, categories and booleans are taken as text, dates are timestamps in UTC.
        keep : names of columns, optional
            Which are copied, such as ids.
        dialect : {"duckdb", "postgres"}
            What numbers and text are called; queries are tested in DuckDB.

        Returns
        -------
        str
            A query with the column f, or f_NAME for each of several targets or classes: of numbers the prediction, of
            classes the logit of the mean f, of counts the logarithm of the rate. All functions are written out, in some
            hundred kilobytes for a dozen terms; models with networks are refused.
        """
        return to_sql(self._fitted(), table, keep=keep, dialect=dialect)

    def to_shap(self, X: TableLike, *, output: int = 0, measure: MeasureLike = None) -> Any:
        """Predictions taken apart as a `shap.Explanation`, which SHAP's figures draw (needs `vertebra[interop]`).

        What a term adds is divided equally among its inputs, as Shapley's rule divides it where components are those
        of the `measure`; base value and values sum to f on the link scale, exactly. Data are numbers, or the codes of
        levels, whose names stand in `display_data`.

        >>> explanation = model.to_shap(data.x)
        >>> np.allclose(explanation.base_values + explanation.values.sum(axis=1), model.predict_f(data.x)[0])
        True
        """
        return to_shap(self._fitted(), X, output=output, measure=measure)

    def to_arviz(
        self,
        X: TableLike = None,
        y: ValuesLike = None,
        *,
        n_draws: int = 1000,
        output: int = 0,
        measure: MeasureLike = None,
        random_state: int | None = None,
    ) -> Any:
        """Draws as ArviZ's `InferenceData` (needs `vertebra[interop]`).

        In `posterior` every term of one or two inputs as a function, f(a) or f(a, b), on the points that `effect` has;
        with `X`, in `predictions`, f on the link scale at its rows; with `y` also `observed_data` and, of numbers,
        draws of them in `posterior_predictive`. They are independent draws, of one chain.

        >>> draws = model.to_arviz(data.x[:5], n_draws=100)
        >>> draws.posterior["f(x3)"].dims, draws.predictions["f"].shape
        (('chain', 'draw', 'x3'), (1, 100, 5))
        """
        seed = seed_of(random_state)
        return to_arviz(self._fitted(), X, y, n_draws=n_draws, output=output, measure=measure, seed=seed)

    def to_interpret(self, name: str | None = None, *, output: int = 0, measure: MeasureLike = None) -> Any:
        """Effects as an explanation of interpret's, which `interpret.show` draws (needs `vertebra[interop]`).

        >>> explanation = model.to_interpret("f1")
        >>> explanation.data()["names"][0], explanation.data(0)["type"]
        ('x3', 'univariate')
        """
        return to_interpret(self._fitted(), name=name, output=output, measure=measure)

    def report(
        self,
        path: str | os.PathLike[str],
        X: TableLike = None,
        y: ValuesLike = None,
        *,
        cases: CasesLike = None,
        measure: MeasureLike = None,
    ) -> None:
        """Writes one self-contained HTML page: the answer, effects, accuracy, and a panel to try inputs in.

        Accuracy is that on `X`, `y`, rows that were not fitted, where they are given; else on the rows of the fit, each
        left out in turn. Five rows are taken apart, prediction by prediction: a typical one, the highest, the lowest
        and the two worst predicted of `cases`, a pair (X, y), or of `X`, `y` where these are given; with `cases=False`
        the page holds no row of any table. `measure` is what effects are averages over, as in `effects`. Needs
        `vertebra[report]`.

        >>> model.report("report.html")
        >>> with open("report.html", encoding="utf-8") as page:
        ...     "x3" in page.read()
        True
        """
        model = self._fitted()
        if (X is None) != (y is None):
            raise ValueError("`X` and `y` must be given together, or neither.")
        evaluation = model.evaluation if X is None else self.evaluate(X, y)  # type: ignore[attr-defined]
        given = (X, y) if cases is None and X is not None else cases
        write(model, evaluation, self._asked(), path, measure, given)

    def _all_effects(self) -> pd.DataFrame | None:
        return self.effects()
