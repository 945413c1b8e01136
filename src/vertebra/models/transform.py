"""Scales for positive targets: Box & Cox's powers, g(y) = (y^λ − 1)/λ, of which the logarithm is λ → 0.

f and its effects are of g(y), whose noise is normal; what is predicted is of y. Quantiles go back as they are, since g
rises; densities take g'(y) along; means and variances are integrals over normal noise, closed for the logarithm.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from vertebra.likelihoods.densities import IN_NUMPY
from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.quadrature import gauss_hermite

# Powers that are tried; a negative one would have no mean. Quarters: their densities differ by less than a fit tells.
POWERS = (0.0, 0.25, 0.5, 0.75)
# Nodes of Gauss and Hermite over the noise, and over f: (1 + λt)^(1/λ) is a polynomial of degree 2 or 4 for two of the
# powers, and smooth for the third, but where it is cut at 0.
N_NODES, N_NODES_OF_F = 40, 20
# Logarithms beyond this are no numbers when they come back: e^700 is 10^304.
MOST_LOG = 700.0
NAMES = ("none", "log", "box_cox", "auto")


class Transform(NamedTuple):
    """g of one power, for all targets."""

    power: float

    @property
    def name(self) -> str:
        return "log" if self.power == 0.0 else "box_cox"

    def of(self, label: str) -> str:
        """The scale in words: that of a target of this name."""
        return f"log({label})" if self.power == 0.0 else f"({label}^{self.power:g} − 1)/{self.power:g}"

    def there(self, y: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n k"]:
        """g(y)."""
        return np.log(y) if self.power == 0.0 else (y**self.power - 1.0) / self.power

    def back(self, t: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n k"]:
        """y; below what g can be, its least value, 0."""
        if self.power == 0.0:
            return np.exp(np.minimum(t, MOST_LOG))
        return np.maximum(1.0 + self.power * t, 0.0) ** (1.0 / self.power)

    def log_slope(self, y: Float[np.ndarray, "*n k"]) -> Float[np.ndarray, "*n k"]:
        """log g'(y) = (λ − 1) log y."""
        return (self.power - 1.0) * np.log(y)

    def moments(
        self, mean: Float[np.ndarray, "*n k"], variance: Float[np.ndarray, "*n k"]
    ) -> tuple[Float[np.ndarray, "*n k"], Float[np.ndarray, "*n k"]]:
        """E y and Var y where g(y) is normal: the lognormal's, else by quadrature."""
        if self.power == 0.0:
            first = np.exp(np.minimum(mean + 0.5 * variance, MOST_LOG))
            return first, np.minimum(first, np.exp(0.4 * MOST_LOG)) ** 2 * np.expm1(np.minimum(variance, MOST_LOG / 10))
        nodes, shares = gauss_hermite(N_NODES)
        y = self.back(mean[..., None] + np.sqrt(variance)[..., None] * nodes)
        first = y @ shares
        return first, (y - first[..., None]) ** 2 @ shares


class Original(NamedTuple):
    """p(y | data) of each row in the units of y; `predictive` is that of (g(y) − centre)/scale."""

    predictive: Predictive
    transform: Transform
    centre: Float[np.ndarray, " k"]
    scale: Float[np.ndarray, " k"]

    def _normals(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means of g(y) given f, at values of f one after the other, their shares, and the noise's variance."""
        said = self.predictive
        if (noise := said.likelihood.normal_variance) is not None:
            nodes, shares = gauss_hermite(N_NODES_OF_F)
            f = said.f_mean[None] + np.sqrt(said.f_variance)[None] * nodes[:, None, None]
            return self.centre + self.scale * f, shares, np.broadcast_to(self.scale**2 * noise, f.shape)
        f = said.points()
        mean, log_scale = said.likelihood.split(f, IN_NUMPY)  # type: ignore[attr-defined]
        shares = np.full(len(f), 1.0 / len(f))
        return self.centre + self.scale * mean, shares, (self.scale * np.exp(log_scale)) ** 2

    def _moments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """E y, Var E[y | f] and E Var[y | f]."""
        location, shares, noise = self._normals()
        first, second = self.transform.moments(location, noise)
        mean = np.tensordot(shares, first, axes=1)
        return mean, np.tensordot(shares, (first - mean) ** 2, axes=1), np.tensordot(shares, second, axes=1)

    def mean(self) -> Float[np.ndarray, "n k"]:
        return self._moments()[0]

    def epistemic(self) -> Float[np.ndarray, "n k"]:
        return self._moments()[1]

    def aleatoric(self) -> Float[np.ndarray, "n k"]:
        return self._moments()[2]

    def standard(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        return (self.transform.there(y) - self.centre) / self.scale

    def log_prob(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """log p(y): that of g(y), and log g'(y)."""
        return self.predictive.log_prob(self.standard(y)) - np.log(self.scale) + self.transform.log_slope(y)

    def inside(self, y: Float[np.ndarray, "n k"], levels: Sequence[float]) -> Float[np.ndarray, "levels n k"]:
        """Whether y lies in the central interval of each level, which is that of g(y)."""
        return self.predictive.inside(self.standard(y), levels)

    def away(self, y: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """How far g(y) is from its mean, in its own sds."""
        return self.predictive.away(self.standard(y))


def check_positive(y: Float[np.ndarray, "n k"], why: str) -> None:
    """Refuses targets that have no logarithm."""
    if (odd := (y <= 0.0).any(axis=1)).any():
        row = int(odd.argmax())
        raise ValueError(f"`y` must be positive {why}, got {y[row].min():g} in row {row} (counted from 0).")
