"""Which inputs the remainder of a model uses, as a table."""

import pandas as pd

from vertebra.models.explanation import latent_of
from vertebra.models.model import Model

COLUMNS = ["input", "main", "total"]


def remainder_inputs(model: Model, *, output: int = 0) -> pd.DataFrame:
    """Of what networks add to the terms, the shares of each input: see `AdditiveRegressor.remainder_inputs`."""
    latent, remainder = latent_of(model, output), model.posterior.remainder
    if remainder is None or remainder.made_of is None or remainder.share[latent] == 0.0:
        return pd.DataFrame(columns=COLUMNS)
    parts = remainder.made_of
    table = pd.DataFrame(
        dict(zip(COLUMNS, (model.names, parts.main[latent], parts.total[latent]), strict=True)), columns=COLUMNS
    ).sort_values("total", ascending=False, ignore_index=True)
    table.attrs["together"] = float(parts.together[latent])
    return table
