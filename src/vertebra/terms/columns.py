"""Columns of terms at rows: products of the functions of their inputs."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from vertebra.terms.functions import Values
from vertebra.terms.term import Term


@runtime_checkable
class OfInput(Protocol):
    """What says the functions of one input at some rows."""

    def of(self, places: Int[np.ndarray, " m"], dtype: type = np.float64, /) -> Float[np.ndarray, "n m"]: ...


class Some(NamedTuple):
    """The functions of one input that several terms are made of, worked out once."""

    places: Int[np.ndarray, " u"]  # in order
    rows: Float[np.ndarray, "u n"]

    def of(self, places: Int[np.ndarray, " m"], dtype: type = np.float64) -> Float[np.ndarray, "n m"]:
        return self.rows[np.searchsorted(self.places, places)].astype(dtype, copy=False).T


def columns(
    values: Mapping[int, OfInput] | Values, term: Term, index: Int[np.ndarray, "m order"], dtype: type = np.float64
) -> Float[np.ndarray, "n m"]:
    """Π_{i∈T} φ_{k_i}(x_i), one column per row of `index`."""
    product = values[term[0]].of(index[:, 0], dtype)
    for axis, i in enumerate(term[1:], start=1):
        product *= values[i].of(index[:, axis], dtype)
    return product


def columns_of_each(
    values: Mapping[int, OfInput] | Values, terms: Iterable[tuple[Term, np.ndarray]], dtype: type = np.float64
) -> list[Float[np.ndarray, "n _"]]:
    """Those of several terms and their `index`, which ask for the same few functions of an input again and again."""
    terms, wanted = list(terms), {}
    for term, index in terms:
        for i, places in zip(term, index.T, strict=True):
            wanted.setdefault(i, []).append(places)
    some: dict[int, OfInput] = {}
    for i, each in wanted.items():
        places = np.unique(np.concatenate(each))
        some[i] = Some(places, np.ascontiguousarray(values[i].of(places, dtype).T))
    return [columns(some, term, index, dtype) for term, index in terms]
