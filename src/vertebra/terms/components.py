"""A sum of terms as components under the joint distribution of its rows (`joint`): f = a_0 + Σ_T B_T a_T."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vertebra.terms.columns import columns
from vertebra.terms.evidence import root_of
from vertebra.terms.joint import Joint, below, raised
from vertebra.terms.linear import Values, Weights
from vertebra.terms.sum_of_terms import SumOfTerms
from vertebra.terms.term import Term

# Rows that the scatter of means is worked out from: its own error of some 3 % matters to nobody.
MOST_ROWS = 5000
# The largest share of the variance of f that other rows may take from it.
MOST_MOVED = 0.9

# Of every term, draw by draw: ‖f_T‖² and Cov(f_T, f).
Squares = dict[Term, tuple[Float[np.ndarray, " draws"], Float[np.ndarray, " draws"]]]


class Components(NamedTuple):
    """The same f as `terms`, in what each term adds where the rows are."""

    terms: SumOfTerms
    joint: Joint

    def weights(self, term: Term, output: int) -> Weights:
        """a_T of one output; of the term () the constant's."""
        mean, root, are_draws = self.terms.weights(output)
        own = self._own(term)
        both = raised(self.terms.basis, self.joint.lower, np.concatenate([mean[:, None], root], axis=1), above=term)
        return Weights(both[own, 0], both[own, 1:], are_draws)

    def at(self, term: Term, points: Sequence[Float[np.ndarray, " n"]]) -> Float[np.ndarray, "n m"]:
        """B_T = Φ_T − Φ_{<T} P_T at points: a column of values per input of the term."""
        if not term:
            return np.ones((1, 1))
        basis, k = self.terms.basis, self._block(term)
        values = {i: basis.systems[i].at(own) for i, own in zip(term, points, strict=True)}
        return columns(values, term, basis.blocks[k].index) - self._inside(term, points) @ self.joint.lower[k]

    def _inside(self, term: Term, points: Sequence[Float[np.ndarray, " n"]]) -> Float[np.ndarray, "n l"]:
        """Φ_{<T}, the constant first."""
        basis = self.terms.basis
        values = {i: basis.systems[i].at(own) for i, own in zip(term, points, strict=True)}
        inside = [columns(values, b.term, b.index) for b in basis.blocks if set(b.term) < set(term)]
        return np.concatenate([np.ones((len(points[0]), 1)), *inside], axis=1)

    def products(self, term: Term) -> Int[np.ndarray, "u order"]:
        """What f_T is made of: for each product the places of its functions, 0 that of 1; its own first."""
        basis = self.terms.basis
        parts = [basis.blocks[self._block(term)].index, np.zeros((1, len(term)), dtype=int)]
        for block in basis.blocks:
            if set(block.term) < set(term):
                index = np.zeros((len(block.index), len(term)), dtype=int)
                index[:, [term.index(i) for i in block.term]] = block.index
                parts.append(index)
        return np.concatenate(parts)

    def of_products(self, term: Term, output: int) -> Weights:
        """The coefficients of these products: (a_T, −P_T a_T)."""
        lower = self.joint.lower[self._block(term)]
        return self.weights(term, output).through(np.concatenate([np.eye(lower.shape[1]), -lower]))

    def values(self, term: Term, points: Sequence[Float[np.ndarray, " n"]], output: int) -> Values:
        """f_T at points, with its posterior, and what is not known of how the inputs are distributed."""
        rows = self.at(term, points)
        found = self.weights(term, output).at(rows)
        # draws that have shapes would lose them
        if found.are_draws or not self.joint.doubt:
            return found
        return found._replace(spread=np.concatenate([found.spread, self._doubt(term, rows, points, output)], axis=1))

    def _doubt(self, term: Term, rows: Float[np.ndarray, "n m"], points, output: int) -> Float[np.ndarray, "n r"]:
        """A root of what f_T moves by if P does, its own and those of terms that hold it, and the means over rows."""
        basis, gram, (mean, *_) = self.terms.basis, self.joint.gram, self.terms.weights(output)
        if not term:  # the mean of f, of so many rows
            variance = mean @ gram @ mean - (gram[0] @ mean) ** 2
            return np.full((len(rows), 1), np.sqrt(max(variance, 0.0) / self.joint.n_rows))
        own = self.weights(term, output).mean
        _, _, square = self._norm(self._block(term))
        parts = [np.full((len(rows), 1), np.sqrt(max(float(own @ square @ own), 0.0) / self.joint.n_rows))]
        if (root := self.joint.doubt[self._block(term)][output]).size:
            parts.append((self._inside(term, points)[:, 1:] - gram[0, below(basis, self._block(term))[1:]]) @ root)
        for k, above in enumerate(basis.terms):
            if set(term) < set(above) and (root := self.joint.doubt[k][output]).size:
                parts.append(rows @ root[np.isin(below(basis, k)[1:], self._own(term))])
        return np.concatenate(parts, axis=1)

    def raised(self, coefficients: Float[np.ndarray, "m1 draws"], above: Term = ()) -> Float[np.ndarray, "m1 draws"]:
        """a = Ac, of draws of c; of one term and those that hold it, if it is given."""
        return raised(self.terms.basis, self.joint.lower, coefficients, above=above)

    def made_of(self, term: Term) -> tuple[Int[np.ndarray, " m"], Int[np.ndarray, " u"], Float[np.ndarray, "u m"]]:
        """The columns of a term, those that f_T is made of, and what a_T gives each of these."""
        both, lift, _ = self._norm(self._block(term))
        return self._own(term), both, lift

    def squares(self, coefficients: Float[np.ndarray, "m1 draws"]) -> Squares:
        """Of every term, draw by draw: ‖f_T‖² over the rows, and Cov(f_T, f) = a_Tᵀ E[B_Tᵀ Φc]; these sum to Var f."""
        basis, gram, lower = self.terms.basis, self.joint.gram, self.joint.lower
        a = raised(basis, lower, coefficients)
        with_f = gram @ coefficients - np.outer(gram[0], gram[0] @ coefficients)
        found = {}
        for k, term in enumerate(basis.terms):
            own, (both, lift, square) = self._own(term), self._norm(k)
            norm = np.maximum(np.sum(a[own] * (square @ a[own]), axis=0), 0.0)
            found[term] = norm, np.sum(a[own] * (lift.T @ with_f[both]), axis=0)
        return found

    def _norm(self, k: int) -> tuple[Int[np.ndarray, " u"], Float[np.ndarray, "u m"], Float[np.ndarray, "m m"]]:
        """Of a block: the columns that f_T is made of, what a_T gives each, and E B_TᵀB_T = [I, −Pᵀ] G [I, −Pᵀ]ᵀ."""
        both = np.concatenate([self._own(self.terms.basis.terms[k]), below(self.terms.basis, k)])
        lower = self.joint.lower[k]
        lift = np.concatenate([np.eye(lower.shape[1]), -lower])
        return both, lift, lift.T @ self.joint.gram[np.ix_(both, both)] @ lift

    def scattered(self, squares: Squares, output: int, rng: np.random.Generator) -> Squares:
        """Such draws with what is not known of the distribution that the rows came from."""
        if not self.joint.scatter or not squares:
            return squares
        root, n = self.joint.scatter[output], len(squares)
        noise = root @ rng.standard_normal((root.shape[1], len(next(iter(squares.values()))[0])))
        # squares stay above 0, and keep their mean
        growth = np.exp(noise[:n] - 0.5 * np.sum(root[:n] ** 2, axis=1)[:, None])
        # and so does their sum, the variance of f, with rows so few that it could fall to nothing
        variance, total = sum(both for _, both in squares.values()), np.abs(noise[n:].sum(axis=0))
        away = noise[n:] * np.minimum(1.0, MOST_MOVED * variance / np.maximum(total, 1e-300))
        pairs = zip(squares.items(), growth, away, strict=True)
        return {term: (own * factor, both + moved) for (term, (own, both)), factor, moved in pairs}

    def scatter(
        self, x: Float[np.ndarray, "n p"], weight: Float[np.ndarray, " n"], n_rows: float
    ) -> tuple[Float[np.ndarray, "t2 t2"], ...]:
        """How far means over so many rows are from those over all there could be, for f at its posterior mean."""
        step = -(-len(x) // MOST_ROWS)
        x, share = x[::step], weight[::step] / weight[::step].sum()
        terms = self.terms.basis.terms
        # a of every output, of which each term has its own
        a = raised(self.terms.basis, self.joint.lower, np.stack(self.terms.means, axis=1))
        said = [self.at(term, [x[:, i] for i in term]) @ a[self._own(term)] for term in terms]
        found = []
        for k in range(self.terms.n_outputs):
            parts = np.array([each[:, k] for each in said]).reshape(len(terms), len(x))
            f = parts.sum(axis=0) - parts.sum(axis=0) @ share
            size = np.maximum(parts**2 @ share, 1e-300)
            each = np.concatenate([parts**2 / size[:, None], parts * f])
            each = each - (each @ share)[:, None]
            found.append(root_of((each * share) @ each.T / n_rows))
        return tuple(found)

    def _block(self, term: Term) -> int:
        return self.terms.basis.terms.index(term)

    def _own(self, term: Term) -> Int[np.ndarray, " m"]:
        """The columns of a term, the constant first among all."""
        if not term:
            return np.zeros(1, dtype=int)
        place = self.terms.basis.slices[self._block(term)]
        return np.arange(place.start, place.stop) + 1
