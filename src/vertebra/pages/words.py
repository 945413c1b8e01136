"""What a report says: numbers as text, and sentences about a model.

Plain text is escaped by the page; sentences with markup in them are `Markup`, which escapes what is put into it.
"""

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd
from markupsafe import Markup, escape

from vertebra.models.evaluation import Evaluation
from vertebra.models.model import Model
from vertebra.models.scores import Method, ScoreName
from vertebra.models.settings import COUNTS
from vertebra.tables.profile import Profile
from vertebra.terms.joint import Measure
from vertebra.terms.term import term_label

# A term is called real from this probability on; below the other it stands there for an interaction's sake.
REAL, DOUBTFUL = 0.95, 0.5
# The sd of a strength, as a share of it, from which its size is called rough: the interval then reaches to half of it.
ROUGH = 0.25
# What effects are averages over.
AVERAGES = {
    Measure.DATA: "Effects are averages over the rows as they are: what inputs that go together have in common is with "
    "the terms of fewer of them, and a share of what varies is negative where a term works against others.",
    Measure.PRODUCT: "Effects are averages over all combinations of values, also those that the data hardly hold.",
}
CASES = (
    "A few rows as the model sees them: a typical one, those with the highest and the lowest prediction, and the worst "
    "predicted. Rows are counted from 1, the first below the header. A row that is predicted badly may be a mistake in "
    "the table, or something that no column says."
)
# The strongest terms, doubtful ones and warnings that the answer names: what a card shows without scrolling.
MOST_STRONGEST, MOST_DOUBTFUL, MOST_WARNINGS = 5, 6, 3


def number(value: float) -> str:
    """Four digits, and no exponent where people would not write one."""
    if value == 0.0 or (1e4 <= abs(value) < 1e7):
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:#.4g}".rstrip(".").replace("-", "−")


def written(value: float) -> str:
    """A value of the table as people write it there: 1 and 40.3, where `number` has 1.000 and 40.30."""
    return f"{value + 0.0:,.7g}".replace("-", "−")


def signed(value: float) -> str:
    return ("" if value < 0.0 else "+") + number(value)


def score(value: float) -> str:
    """A score beside others: what is 0 to three places is nothing but rounding, and no power of ten."""
    return "0.000" if 0.0 < abs(value) < 5e-4 else number(value)


def percent(share: float, places: int = 1) -> str:
    # what rounds to nothing has no sign
    return f"{round(100.0 * share, places) + 0.0:.{places}f}\u00a0%".replace("-", "−")


def coded(text: str) -> Markup:
    """Plain text or markup, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def unit(model: Model) -> str:
    """What effects are measured in."""
    target = model.target
    if target.classes is not None:
        return f"log odds of {target.classes[1]}" if len(target.classes) == 2 else "logits of the class"
    if model.noise in COUNTS:
        return f"log of {target.names[0]}"
    if target.transform is not None:
        return target.scale_of(0)
    return f"units of {target.names[0]}" if len(target.names) == 1 else "units of the target"


def unit_of(model: Model, output: int) -> str:
    """What the parts of one output are measured in."""
    if model.target.classes is not None and len(model.target.classes) > 2:
        return f"logit of {short(str(model.target.classes[output]), 60)}"
    return unit(model) if len(model.target.names) == 1 else f"units of {short(model.target.names[output], 60)}"


def how_good(model: Model, evaluation: Evaluation | None) -> list[str]:
    """Accuracy, beside a linear model and beside knowing nothing."""
    if evaluation is None:
        return [Markup("Not measured: give <code>report</code> rows that were not fitted.")]
    own, linear = evaluation.scores["model"], evaluation.scores["linear"]
    where = f"{evaluation.method.words}, {evaluation.n:,} rows"
    if "log_loss" in own:
        said = f"{percent(own['accuracy'])} of the rows get the right class"
        said += f", and AUC is {own['auc']:.3f}" if "auc" in own else ""
        versus = f"Log loss {own['log_loss']:.3f}; a linear model has {linear['log_loss']:.3f}, the classes' shares "
        return [f"{said} ({where}).", versus + f"{evaluation.scores['shares']['log_loss']:.3f}."]
    texts: list[str] = []
    names = model.target.names
    for k, name in enumerate(names):
        of = k if len(names) > 1 else None
        rmse, r2 = ScoreName("rmse", of).key, own[ScoreName("r2", of).key]
        whose = Markup("<b>{}</b>: ").format(name) if len(names) > 1 else ""
        explained = f" and explain {percent(r2)} of the variance" if not np.isnan(r2) else ""
        texts.append(
            Markup("{}Predictions are off by <b>{}</b> (RMSE){}. A linear model is off by {}, the mean by {}.").format(
                whose, number(own[rmse]), explained, number(linear[rmse]), number(evaluation.scores["mean"][rmse])
            )
        )
        texts.append(f"95 % intervals held {percent(own[ScoreName('coverage_95', of).key])} of the rows ({where}).")
    return texts


def what_is_real(model: Model, table: pd.DataFrame) -> list[str]:
    """How many inputs and interactions act, and the strongest; `table` has the terms of all outputs."""
    real = table.loc[table["probability"] >= REAL]
    added = 0.0
    if model.posterior.remainder is not None:
        is_named = real["order"] < len(model.schema.columns)
        added, real = float(real["sobol"][~is_named].sum()), real[is_named]
    more = [f"Networks over all inputs add {percent(added, 0)} that terms of few inputs leave out."] if added else []
    # parts of a date are one column of the user's
    sources = {column.name: column.source for column in model.schema.columns}
    n_inputs = len({sources[name] for term in real["term"] for name in term})
    if not len(real):
        unsure = "No single input is sure to act, though together they predict." if len(table) else ""
        return [unsure or "No input was found to act.", *more]
    pairs = int((real["order"] >= 2).sum())
    top = [
        Markup("<b>{}</b> ({})").format(term_label(row.term), percent(row.sobol, 0))
        for row in real.head(MOST_STRONGEST).itertuples()
    ]
    return [
        f"{n_inputs} of {len(model.schema.sources)} inputs act, and {pairs or 'no'} interaction{'s' * (pairs != 1)}, "
        f"with a probability of at least {percent(REAL, 0)} each.",
        Markup("Strongest, with their share of what varies: {}.").format(Markup(", ").join(top)),
        *more,
    ]


def what_is_uncertain(model: Model, table: pd.DataFrame) -> list[str]:
    """Terms that may not be there, terms of a size that is known roughly, and the first warnings."""
    doubtful = table.loc[(table["probability"] >= DOUBTFUL) & (table["probability"] < REAL)]
    texts = []
    if len(doubtful):
        texts.append(f"Perhaps real, perhaps not: {_listed(doubtful['term'])}.")
    vague = table.loc[(table["probability"] >= REAL) & (table["sd"] > ROUGH * table["strength"])]
    if len(vague):
        texts.append(f"Real, but of a size known only roughly: {_listed(vague['term'])}.")
    texts += model.diagnostics.warnings[:MOST_WARNINGS]
    return texts or ["Nothing stands out: every effect found is clear, and the fit raised no warning."]


def _listed(terms: Iterable[tuple[str, ...]]) -> str:
    return ", ".join(map(term_label, list(terms)[:MOST_DOUBTFUL]))


def rest_words(model: Model) -> str:
    """What the panel leaves out, if anything."""
    if (remainder := model.posterior.remainder) is None:
        return ""
    if model.is_classifier or model.likelihood.is_discrete:
        away = f"{' or '.join(map(number, remainder.size))} on the {'logit' if model.is_classifier else 'log'} scale"
    else:
        # of uneven noise every second latent function is its scale
        sizes = remainder.size[:: model.likelihood.latent_per_target]
        away = " or ".join(map(number, sizes * model.target.scale))
    return (
        " The term of all inputs stays out, since a page has no room for its networks: the model itself is "
        f"typically {away} away from this, with narrower intervals."
    )


def structure(model: Model, most: int) -> str:
    """The clusters, and what reads all inputs."""
    clusters, added = model.clusters, model.posterior.remainder is not None
    if not clusters:
        alone = "The model is a constant and networks that read all inputs."
        return alone if added else "No input was found to act: the model is a constant."
    more = f", and {len(clusters) - most} more" if len(clusters) > most else ""
    return (
        f"The prediction is a sum of {len(clusters)} sub-network{'s' * (len(clusters) != 1)}, each of which reads "
        f"the inputs of one cluster and no other: {'; '.join(map(term_label, clusters[:most]))}{more}."
        f"{' Networks that read all inputs add to it.' * added}"
    )


def row_count(profile: Profile) -> str:
    count = f"{profile.n_rows:,} rows"
    if not np.isclose(profile.weight, profile.n_rows):
        count += f", which count as {number(profile.weight)} by their weights"
    return count


def limits(model: Model, evaluation: Evaluation | None, measure: Measure, *, is_searched: bool) -> list[str]:
    """What nobody should read into the page; terms were searched for, or given."""
    texts = [
        "Effects say how predictions depend on the inputs. That an input acts here does not mean that changing it in "
        "the world would change the target.",
        "Where inputs go together, what one does and what the other does can be told apart only as far as rows differ "
        f"in them. {AVERAGES[measure]}",
        "A term that is not listed was not seen; a weak one can be there all the same."
        + (" Terms of more than three inputs were not looked for." if is_searched else ""),
        "Beyond the values seen nothing is known: the panel stays at the edge of them.",
        "Bands around effects are of the effect. A single outcome varies more: that is the interval of a prediction.",
    ]
    if evaluation is not None and evaluation.method is Method.LEFT_OUT:
        texts.append(
            "Accuracy was measured on every row with that row left out, but the terms had been chosen with it: on new "
            "rows expect it a little worse, most of all with few rows and many inputs."
        )
    if model.conformal is not None:
        texts.append(
            "Intervals are calibrated: they hold for rows from the source of those fitted, whatever the noise."
        )
    return texts
