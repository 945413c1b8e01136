"""What all four estimators share: settings in, a fitted model held, its parts by scikit-learn's names."""

import dataclasses
import os
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import NotFittedError

from vertebra.effects.notebook import answer
from vertebra.files.archive import save
from vertebra.files.params import unusual
from vertebra.machine.checks import check_count, seed_of
from vertebra.models.evaluation import Evaluation
from vertebra.models.findings import Diagnostics
from vertebra.models.model import Model
from vertebra.models.settings import InputLike, Settings
from vertebra.models.summary import Summary, summary
from vertebra.tables.schema import Schema, TableLike
from vertebra.terms.term import Term

ASKED = {part.name for part in dataclasses.fields(Settings)}


class Part:
    """A part of the fitted model under scikit-learn's name for it; like any fitted attribute, not there before."""

    def __init__(self, of: Callable[[Model], object]):
        self.of = of

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: "Estimator | None", owner: type) -> object:
        if estimator is None:
            return self
        if "model_" not in vars(estimator):
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        return self.of(estimator.model_)


class Estimator(BaseEstimator):
    """Holds the record of its fit, `model_`, and knows nothing of what is fitted."""

    model_: Model
    random_state: int | np.random.RandomState | None
    scheme: str
    weights: str
    n_steps: int | None
    verbose: bool | int

    schema_: Schema = Part(lambda model: model.schema)  # type: ignore[assignment]
    target_names_: list[str] = Part(lambda model: model.target.names)  # type: ignore[assignment]
    evaluation_: Evaluation | None = Part(lambda model: model.evaluation)  # type: ignore[assignment]
    diagnostics_: Diagnostics = Part(lambda model: model.diagnostics)  # type: ignore[assignment]
    n_features_in_: int = Part(lambda model: len(model.schema.sources))  # type: ignore[assignment]

    @property
    def feature_names_in_(self) -> np.ndarray:
        if not self.__sklearn_is_fitted__() or not self.schema_.named:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'feature_names_in_'")
        return np.array(self.schema_.sources, dtype=object)

    def _settings(self, known: list[str], *, start: Sequence[Term] | None = None) -> Settings:
        """The arguments, checked as far as no table is needed."""
        if self.scheme != "auto" and self.scheme not in known:
            raise ValueError(f'`scheme` must be "auto" or one of {", ".join(known)}, got {self.scheme!r}.')
        if self.n_steps is not None:
            check_count(n_steps=self.n_steps)
        asked = {name: value for name, value in self.get_params(deep=False).items() if name in ASKED}
        about = dict(name=type(self).__name__, seed=seed_of(self.random_state), is_classifier=is_classifier(self))
        return Settings(**about, **asked, start=start)

    def _fitted(self) -> Model:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
                "using this estimator."
            )
        return self.model_

    def summary(self, level: float = 0.95) -> Summary:
        """The fit in print: accuracy, noise, every term with an interval of its strength, and the verdict.

        >>> str(model.summary()).splitlines()[2].startswith("target:  y")
        True
        """
        return summary(self._fitted(), level)

    def marginal(self, name: InputLike) -> pd.DataFrame:
        """How the values of an input were spread at fit: lower, upper, share of bins, or level, share.

        >>> marginal = model.marginal("x3")
        >>> list(marginal), round(float(marginal["share"].sum()), 6)
        (['lower', 'upper', 'share'], 1.0)
        """
        model = self._fitted()
        i = model.position(name)
        return model.profile.inputs[i].table(model.schema.columns[i])

    def outside(self, X: TableLike) -> pd.DataFrame:
        """Which values lie clearly outside the range of the fit: a row for each of X, a column for every input.

        There predictions level off, and their sds grow with the distance; `predict` warns of such rows
        (`vb.OutsideRange`).

        >>> model.outside(data.x).to_numpy().any()
        np.False_
        """
        model = self._fitted()
        away = model.outside(model.schema.matrix(X, model.kind))
        return pd.DataFrame(away, columns=model.names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the fitted model to one file, which `vertebra.load` reads; an older file there is replaced at once.

        >>> model.save("model.vertebra")
        >>> np.allclose(vb.load("model.vertebra").predict(data.x), model.predict(data.x))
        True
        """
        save(self._fitted(), self.get_params(deep=False), path)

    def _asked(self) -> dict[str, object]:
        """The arguments that are not the defaults."""
        return unusual(self.get_params(deep=False), type(self)().get_params(deep=False))

    def _repr_html_inner(self) -> str:
        return super()._repr_html_inner() + self._answer()

    def _repr_mimebundle_(self, **kwargs: object) -> dict[str, str]:
        bundle = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": bundle["text/html"] + self._answer()} if "text/html" in bundle else bundle

    def _answer(self) -> str:
        """What a notebook shows under the settings of a fitted model."""
        if not self.__sklearn_is_fitted__():
            return ""
        found, seen = self.diagnostics_, self.evaluation_
        accuracy, method = (None, "") if seen is None else (seen.table(), f"{seen.method.words}, {seen.n} rows")
        return answer(type(self).__name__, found.verdict, accuracy, method, self._all_effects(), found.warnings)

    def _all_effects(self) -> pd.DataFrame | None:
        """The effects, where the model has some."""
        return None

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in vars(self)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        return tags
