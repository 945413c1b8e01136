"""A fitted sum of terms: f = c + Σ_T I_T with the joint Gaussian posterior of all coefficients.

Predictions, components and strengths are linear algebra: a product of functions with mean zero lies in one component
(`functions`), so that I_T is the part of f with the coefficients of T. From a baseline row x⁰, the paper's δ(x⁰), I_T
gathers what all terms that hold T add there: Π_{i∈T} (φ(x_i) − φ(x⁰_i)) Π_{j∉T} φ(x⁰_j).
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.machine.threads import cores, results
from vertebra.terms.columns import columns
from vertebra.terms.evidence import Basis
from vertebra.terms.joint import Joint
from vertebra.terms.linear import LinearTerms, Weights
from vertebra.terms.term import Term, subsets

# Rows evaluated at once, and from which threads share the work.
CHUNK, ROWS_FOR_THREADS = 4096, 20_000
# Roots of so many columns are multiplied in groups, by their rows that are not zero.
MANY_COLUMNS, N_GROUPS = 64, 4


# The quantiles that a strength is kept by.
LEVELS = (0.0025, 0.025, 0.1, 0.25, 0.5, 0.75, 0.9, 0.975, 0.9975)

# Of terms that were chosen near the level of the choice: the quantiles of their strengths, given that they were.
Chosen = Mapping[Term, Float[np.ndarray, " levels"]]


class Part(NamedTuple):
    """I_T as a sum over products of functions of the inputs of T: their places, and Bv, their coefficients."""

    term: Term
    index: Int[np.ndarray, "u order"]
    lift: Float[np.ndarray, "u m"]
    centres: tuple[Float[np.ndarray, " k"], ...]  # what is taken off every function of an input: 0, or φ(x⁰)


class SumOfTerms(NamedTuple):
    """The basis, and the posterior of (c, v) for every output: its mean and a root R, Σ = R Rᵀ.

    Where a shape was asked for, the columns of a root are draws less the mean (`shapes`).
    """

    basis: Basis
    means: tuple[Float[np.ndarray, " m1"], ...]
    roots: tuple[Float[np.ndarray, "m1 k"], ...]
    are_draws: tuple[bool, ...] = ()  # output by output; none where all are Gaussian
    joint: Joint | None = None  # how its columns go together over the rows; files of 0.1 have none
    chosen: tuple[Chosen, ...] = ()  # output by output

    @property
    def n_outputs(self) -> int:
        return len(self.means)

    def values(self, x: Float[np.ndarray, "n p"]) -> list[Float[np.ndarray, "n _"]]:
        """The functions of every input that a term reads; of the others none."""
        read = {i for term in self.basis.terms for i in term}
        none = np.zeros((len(x), 0))
        return [system(x[:, i]) if i in read else none for i, system in enumerate(self.basis.systems)]

    def features(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n m1"]:
        """(1, Φ). It lies column by column, as its columns are made and multiplied fastest."""
        values = [np.ascontiguousarray(own.T) for own in self.values(x)]
        phi = np.empty((self.basis.n_columns + 1, len(x)))
        phi[0] = 1.0
        for block, place in zip(self.basis.blocks, self.basis.slices, strict=True):
            own, (first, *others) = phi[place.start + 1 : place.stop + 1], block.term
            np.take(values[first], block.index[:, 0], axis=0, out=own)
            for axis, i in enumerate(others, start=1):
                own *= values[i][block.index[:, axis]]
        return phi.T

    def mean(self, x: Float[np.ndarray, "n p"]) -> Float[np.ndarray, "n outputs"]:
        weights = np.stack(self.means, axis=1)
        return np.concatenate(list(_by_chunks(lambda part: self.features(part) @ weights, x)))

    def moments(
        self, x: Float[np.ndarray, "n p"], dtype: type = np.float64
    ) -> tuple[Float[np.ndarray, "n outputs"], Float[np.ndarray, "n outputs"]]:
        """Mean and variance of f; the variance worked out in `dtype`, of half the digits in half the time."""
        weights = np.stack(self.means, axis=1)
        roots = [_without_zeros(root.astype(dtype, copy=False)) for root in self.roots]

        def moments(part):
            phi = self.features(part)
            mean, phi = phi @ weights, phi.astype(dtype, copy=False)
            variance = np.zeros((len(part), len(roots)))
            for k, own in enumerate(roots):
                for start, part_of_root in own:
                    spread = phi[:, start:] @ part_of_root
                    variance[:, k] += np.einsum("nk,nk->n", spread, spread)
            return mean, variance

        means, variances = zip(*_by_chunks(moments, x), strict=True)
        return np.concatenate(means), np.concatenate(variances)

    def sample(
        self, x: Float[np.ndarray, "n p"], n_draws: int, rng: np.random.Generator
    ) -> Float[np.ndarray, "draws n outputs"]:
        """Draws of f: each one function, at all rows."""
        coefficients = [self.weights(k).draw(n_draws, rng) for k in range(self.n_outputs)]
        parts = []
        for part in _chunks(x):
            phi = self.features(part)
            parts.append(np.stack([(phi @ draws).T for draws in coefficients], axis=2))
        return np.concatenate(parts, axis=1)

    def weights(self, output: int) -> Weights:
        """(c, v) of one output."""
        return Weights(self.means[output], self.roots[output], bool(self.are_draws) and self.are_draws[output])

    def pieces(self, output: int, n_draws: int, seed: Sequence[int]) -> LinearTerms:
        """One output as the constant and a piece for every term."""
        (mean, root, are_draws), blocks = self.weights(output), self.basis.blocks
        places = [slice(0, 1), *(slice(place.start + 1, place.stop + 1) for place in self.basis.slices)]

        def features(piece: int, points: np.ndarray, _: bool) -> Float[np.ndarray, "m1 n"]:
            own = np.ones((len(points), 1))
            if piece:
                term, index = blocks[piece - 1]
                values = {i: self.basis.systems[i].at(points[:, axis]) for axis, i in enumerate(term)}
                own = columns(values, term, index)
            return np.append(own.T, np.zeros((1, len(points))), axis=0)

        def weights(pieces: Sequence[int]) -> Weights:
            own_mean, own_root = (np.concatenate([each[places[k]] for k in pieces]) for each in (mean, root))
            return Weights(own_mean, own_root, are_draws)

        every = tuple(range(len(places)))
        return LinearTerms(((), *self.basis.terms), every, features, weights, n_draws, seed, is_pure=True)

    def terms(self, baseline: Float[np.ndarray, " p"] | None = None) -> list[Term]:
        """The terms that are not zero; from a baseline every subset of one may be there."""
        terms = self.basis.terms if baseline is None else subsets(self.basis.terms)
        return sorted(terms, key=lambda t: (len(t), t))

    def part(self, term: Term, baseline: Float[np.ndarray, " p"] | None = None) -> Part:
        """I_T."""
        blocks = [
            (block, place)
            for block, place in zip(self.basis.blocks, self.basis.slices, strict=True)
            if block.term == term or (baseline is not None and set(term) < set(block.term))
        ]
        systems = self.basis.systems
        inputs = {*term, *(i for block, _ in blocks for i in block.term)}
        at = {} if baseline is None else {i: systems[i](baseline[[i]])[0] for i in inputs}
        index, columns, sizes = [np.zeros((0, len(term)), dtype=int)], [], []
        for block, place in blocks:
            axes = [block.term.index(i) for i in term]
            index.append(block.index[:, axes])
            columns.append(np.arange(place.start, place.stop) + 1)
            size = np.ones(len(block.index))
            for axis, i in enumerate(block.term):
                if i not in term:
                    size = size * at[i][block.index[:, axis]]
            sizes.append(size)
        products, home = np.unique(np.concatenate(index), axis=0, return_inverse=True)
        lift = np.zeros((len(products), len(self.means[0])))
        if columns:
            np.add.at(lift, (home.ravel(), np.concatenate(columns)), np.concatenate(sizes))
        if not term:
            lift = lift if len(lift) else np.zeros((1, len(self.means[0])))
            lift[:, 0] = 1.0
        zero = [np.zeros(len(systems[i].kind)) for i in term]
        return Part(term, products, lift, tuple(zero if baseline is None else [at[i] for i in term]))

    def at(self, part: Part, points: Sequence[Float[np.ndarray, " n"]]) -> Float[np.ndarray, "n u"]:
        """The part's products at points: a column of values per input of the term."""
        product = np.ones((len(points[0]) if points else 1, len(part.lift)))
        for axis, (i, values) in enumerate(zip(part.term, points, strict=True)):
            own = self.basis.systems[i](values) - part.centres[axis]
            product = product * own[:, part.index[:, axis]]
        return product

    def norm(self, part: Part) -> Float[np.ndarray, "u u"]:
        """M with ‖I_T‖₂² = wᵀ M w, w the coefficients of its products, under the product of the marginals."""
        # E (φ − a)(φ − a)ᵀ = E φφᵀ + aaᵀ: the functions have mean zero
        product = np.ones((len(part.lift), len(part.lift)))
        for axis, i in enumerate(part.term):
            own, centre = part.index[:, axis], part.centres[axis][part.index[:, axis]]
            product = product * (self.basis.systems[i].gram[np.ix_(own, own)] + np.outer(centre, centre))
        return product

    def strengths(self, part: Part, coefficients: Float[np.ndarray, "m1 draws"]) -> Float[np.ndarray, " draws"]:
        """‖I_T‖₂ of each draw of the coefficients."""
        w = part.lift @ coefficients
        return np.sqrt(np.maximum(np.sum(w * (self.norm(part) @ w), axis=0), 0.0))

    def factors(
        self, coefficients: Float[np.ndarray, "m1 draws"], output: int
    ) -> dict[Term, Float[np.ndarray, " draws"]]:
        """Of terms that were chosen near the level of the choice, what each draw is to be multiplied by.

        The posterior does not know of the choice. The draws keep their order, and have the quantiles given the choice.
        """
        found = {}
        for term, quantiles in (self.chosen[output] if self.chosen else {}).items():
            strength = self.strengths(self.part(term), coefficients)
            place = (np.argsort(np.argsort(strength)) + 0.5) / len(strength)
            found[term] = np.interp(place, LEVELS, quantiles) / np.maximum(strength, 1e-300)
        return found

    def given_the_choice(
        self, coefficients: Float[np.ndarray, "m1 draws"], output: int
    ) -> Float[np.ndarray, "m1 draws"]:
        """The draws with these factors."""
        factors = self.factors(coefficients, output)
        coefficients = coefficients.copy()
        for block, place in zip(self.basis.blocks, self.basis.slices, strict=True):
            if block.term in factors:
                coefficients[place.start + 1 : place.stop + 1] *= factors[block.term]
        return coefficients


def triangular(root: Float[np.ndarray, "m k"]) -> Float[np.ndarray, "m j"]:
    """L with L Lᵀ = R Rᵀ and zeros above its diagonal, which need not be multiplied with."""
    # by rows, as a file gives it back: the order of sums, and the last bit, depend on it
    return np.ascontiguousarray(np.linalg.qr(root.T, mode="r").T)  # pyright: ignore[reportAttributeAccessIssue]


def _without_zeros(root) -> list[tuple[int, Float[np.ndarray, "_ _"]]]:
    """Groups of columns, each from the row on where it begins: all rows, unless the root is triangular."""
    n = root.shape[1]
    edges = np.linspace(0, n, (N_GROUPS if n >= MANY_COLUMNS else 1) + 1).astype(int).tolist()
    starts = [0 if root[:start, start:end].any() else start for start, end in itertools.pairwise(edges)]
    return [(s, root[s:, start:end]) for s, (start, end) in zip(starts, itertools.pairwise(edges), strict=True)]


def _by_chunks(work, x):
    return results(work, _chunks(x), cores() if len(x) >= ROWS_FOR_THREADS else 1)


def _chunks(x):
    return [x[start : start + CHUNK] for start in range(0, max(len(x), 1), CHUNK)]
