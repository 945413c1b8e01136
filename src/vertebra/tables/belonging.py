"""Which rows belong together, and when they were, as users say it: values of a column, or one for every row."""

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from vertebra.tables.column import as_read
from vertebra.tables.schema import ValuesLike


def group_codes(groups: ValuesLike, n: int) -> Int[np.ndarray, " n"]:
    """The number of each row's group, from 0; a row without one is a group of its own."""
    values = _values(groups, n, "groups")
    codes, names = pd.factorize(values)
    lone = codes < 0
    codes = np.where(lone, len(names) + np.cumsum(lone) - 1, codes)
    if codes.max(initial=0) < 1:
        raise ValueError(f"`groups` must name at least 2 groups of rows, got {len(np.unique(codes))}.")
    return codes.astype(np.int64)


def instants_of(time: ValuesLike, n: int) -> Float[np.ndarray, " n"]:
    """When each row was, as a number: dates, their text, or numbers that grow with time."""
    values = as_read(_values(time, n, "time"), "time")
    if pd.api.types.is_datetime64_any_dtype(values):
        seconds = pd.to_datetime(values, utc=True).to_numpy("datetime64[ns]")
        # nanoseconds since the first, of which a double holds a year to 4 ns
        found = np.where(np.isnat(seconds), np.nan, (seconds - np.nanmin(seconds)).astype(float))
    else:
        try:
            found = values.to_numpy(dtype=float, na_value=np.nan)
        except (TypeError, ValueError):
            sample = repr(values.iloc[0])[:60]
            raise ValueError(f"`time` must hold dates, or numbers that grow with time, got {sample}.") from None
    if not np.isfinite(found).all():
        first = int((~np.isfinite(found)).argmax())
        raise ValueError(f"`time` must be known for every row: row {first} (counted from 0) has none.")
    if len(found) and found.max() == found.min():
        raise ValueError("`time` must differ between rows, got one value.")
    return found


def _values(given: ValuesLike, n: int, name: str) -> pd.Series:
    values = given if isinstance(given, pd.Series) else pd.Series(np.asarray(given).tolist())
    if len(values) != n:
        raise ValueError(f"`{name}` must name a column of a frame, or have one entry per row, {n}, got {len(values)}.")
    return values.reset_index(drop=True)
