"""The scale on which a positive target is fitted: as it is, or that of Box & Cox which rows left out speak for.

A quick look before the fit: main effects on every scale, and of each the log density of rows left out, of y itself, with
what other noise than even one would bring on that scale. Where noise grows with the mean its logarithm may do as well.
"""

import math

import numpy as np

from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import Plain
from vertebra.models.noise_choice import FEWEST_ROWS, LEAST_GAIN, gains_of
from vertebra.models.reading import Read, Targets, encoded
from vertebra.models.settings import Settings
from vertebra.models.target import of_rows
from vertebra.models.transform import POWERS, Original, Transform
from vertebra.tables.encoding import MOST_LEVELS
from vertebra.terms.additive import fit_additive

# Rows that are looked at: of so many a density is known to 0.02 a row.
MOST_LOOKED_AT = 4000
# By how much a row's log density must be higher for another scale to be taken unasked; LEAST_GAIN of all rows besides.
CLEAR_GAIN = 0.02
# Targets that are less skewed than this are left as they are: noise alone is then more of a reason.
LEAST_SKEW = 0.5
# A mean squared error of y that is larger than without by more than this share is too much.
MUCH_WORSE = 1.0

TAKEN = (
    "{scale} was fitted, and not {name}: the log density of rows left out is higher with it, by {gain:.3f} a row. "
    'Effects are on that scale, predictions of {name} itself; `transform="none"` does without.'
)
ASKED = "as asked, {scale} was fitted: effects are on that scale, predictions of {name} itself."


def rescaled(settings: Settings, read: Read) -> tuple[Read, list[str]]:
    """The table with its target on the scale that was asked for, or that rows speak for; and words about it."""
    asked, rows = settings.transform, read.rows
    if asked == "none" or settings.is_count or read.stream is not None or not np.all(rows.y > 0.0):
        return read, []
    if asked == "log":
        return _on(read, Transform(0.0)), [_words(ASKED, read, Transform(0.0))]
    if asked == "auto" and not _may_be_bent(settings, read):
        return read, []
    scores = {power: _looked_at(settings, read, Transform(power)) for power in POWERS}
    best = max(scores, key=lambda power: scores[power][0])
    if asked == "box_cox":
        return _on(read, Transform(best)), [_words(ASKED, read, Transform(best))]
    density, error = _looked_at(settings, read, None)
    gain = scores[best][0] - density
    if gain < CLEAR_GAIN + LEAST_GAIN / float(rows.weight.sum()) or scores[best][1] > MUCH_WORSE * error:
        return read, []
    return _on(read, Transform(best)), [_words(TAKEN, read, Transform(best), gain)]


def _may_be_bent(settings: Settings, read: Read) -> bool:
    """Whether a scale is chosen unasked: of one target that is skewed, by rows that do not depend on each other."""
    rows = read.rows
    is_free = rows.group is None and rows.time is None and not settings.monotone and not settings.conformal
    if not is_free or rows.y.shape[1] > 1 or len(rows.y) < FEWEST_ROWS or settings.likelihood != "auto":
        return False
    z = (rows.y[:, 0] - np.average(rows.y[:, 0], weights=rows.weight)) / max(float(np.std(rows.y)), 1e-300)
    return float(np.average(z**3, weights=rows.weight)) > LEAST_SKEW


def _on(read: Read, transform: Transform) -> Read:
    """The same with another scale of the target."""
    old, rows = read.target, read.rows
    about = dict(is_single=old.is_single, is_count=False)
    return read._replace(target=of_rows(rows.y, rows.weight, old.names, transform=transform, **about))


def _words(text: str, read: Read, transform: Transform, gain: float = math.nan) -> str:
    name = read.target.names[0]
    return text.format(scale=transform.of(name), name=name, gain=gain)


def _looked_at(settings: Settings, read: Read, transform: Transform | None) -> tuple[float, float]:
    """The log density of a row left out of a fit of main effects on this scale, and the mean squared error of y."""
    rows = read.rows
    if len(rows.y) > MOST_LOOKED_AT:
        some = np.random.default_rng(settings.seed).choice(len(rows.y), MOST_LOOKED_AT, replace=False)
        rows = rows.at(np.sort(some))
    read = _on(read._replace(rows=rows), transform) if transform is not None else read._replace(rows=rows)
    y, weight, target = rows.y, rows.weight, read.target
    coded = encoded(read, Targets(read.z, weight), settings.seed, most_levels=MOST_LEVELS, fill=False)
    mains, rng = [(i,) for i in range(coded.x.shape[1])], np.random.default_rng(settings.seed)
    about = dict(clusters=mains, n_levels=coded.n_levels, rng=rng, calibrate=False)
    found = fit_additive(coded.x, Plain(read.z, weight), weight, **about)
    said = Predictive(found.likelihood, *found.left_out)
    other = gains_of(found, coded.x, read.z, weight, coded.n_levels, has_mean=transform is not None)
    more = max([0.0, *other.values()])
    if transform is None:
        density, mean = said.log_prob(read.z) - np.log(target.scale), target.in_units(said.mean())
    else:
        seen = Original(said, transform, target.centre, target.scale)
        density, mean = seen.log_prob(y), seen.mean()
    error = float(np.sum(weight @ (y - mean) ** 2))
    return (float(np.sum(weight @ density)) + more) / float(weight.sum()), error
