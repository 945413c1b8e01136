"""Whether whole numbers are fitted as counts: Poisson's law or the negative binomial, of a rate that is e^f.

A quick look: main effects with even noise and as counts, and of each the log mass of rows left out. That of Gaussian
noise is the mass of y ± 1/2, with what other noise than even would bring. Ratings and grades are whole numbers too, and
vary less than counts of their size, so that mass tells them apart.
"""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.special import log_ndtr

from vertebra.likelihoods.predictive import Predictive
from vertebra.likelihoods.working_responses import MoreVaried, Plain, Working
from vertebra.models.findings import Kind, notes
from vertebra.models.model import Model
from vertebra.models.noise_choice import FEWEST_ROWS, LEAST_GAIN, gains_of
from vertebra.models.reading import Encoded, Read, Targets, encoded
from vertebra.models.settings import Settings
from vertebra.models.target import of_rows
from vertebra.tables.counting import is_count_like
from vertebra.tables.encoding import MOST_LEVELS
from vertebra.terms.additive import Additive, fit_additive

# Counts of a larger median are fitted as such only where they are asked for: a step of 1 hardly matters then, and
# prices in whole units look like them. A round number.
LARGEST_MEDIAN = 20.0
# Rows that are looked at: of so many a log mass is known to 0.02 a row.
MOST_LOOKED_AT = 4000
# By how much a row's log mass must be higher for counts to be taken, and LEAST_GAIN of all rows; and a mean squared
# error so many times that of even noise is too much: the largest counts, the noisiest, decide it. On six tables each of
# 300 counts of mean 3, Poisson's, overdispersed and zero-inflated, the gain was 0.07 to 0.33 and the error 0.98 to 1.07
# times as large; of rounded Gaussian noise above 0 the gain was below −0.02.
CLEAR_GAIN, MUCH_WORSE = 0.02, 1.1

TAKEN = (
    "{name} was fitted as counts: the log mass of rows left out is higher so, by {gain:.3f} a row. Effects are on the "
    'log of the rate; `likelihood="gaussian"` does without.'
)


def gain_of_counts(settings: Settings, read: Read) -> float | None:
    """By how much rows left out speak for counts, a row, where that is clear: of one target in rows enough."""
    rows = read.rows
    is_free = read.stream is None and rows.group is None and rows.time is None and not settings.monotone
    is_asked = settings.likelihood == "auto" and settings.target_transform == "none"
    if not (is_free and is_asked) or rows.y.shape[1] > 1 or len(rows.y) < FEWEST_ROWS:
        return None
    if not is_count_like(rows.y[:, 0]) or float(np.median(rows.y)) > LARGEST_MEDIAN:
        return None
    if len(rows.y) > MOST_LOOKED_AT:
        some = np.random.default_rng(settings.seed).choice(len(rows.y), MOST_LOOKED_AT, replace=False)
        read = read._replace(rows=rows.at(np.sort(some)))
    return _gain(settings, read)


def as_counts(settings: Settings, read: Read) -> tuple[Settings, Read]:
    """What is asked for, and the table, with a target that counts."""
    old, rows = read.target, read.rows
    target = of_rows(rows.y, rows.weight, old.names, is_single=old.is_single, is_count=True)
    return dataclasses.replace(settings, likelihood="counts"), read._replace(target=target)


def said(model: Model, gain: float) -> Model:
    """The fit with words about the choice."""
    words = notes(Kind.FITTING, [TAKEN.format(name=model.target.names[0], gain=gain)])
    found = model.diagnostics
    return model.replace(diagnostics=dataclasses.replace(found, findings=(*words, *found.findings)))


def _gain(settings: Settings, read: Read) -> float | None:
    """The gain in log mass a row, none where it is not clear or the mean is predicted worse."""
    y, weight, target = read.rows.y, read.rows.weight, read.target
    n = float(weight.sum())
    coded = encoded(read, Targets(read.z, weight), settings.seed, most_levels=MOST_LEVELS, fill=False)
    even = _mains(settings, coded, Plain(read.z, weight))
    before = Predictive(even.likelihood, *even.left_out)
    mass = weight @ log_mass(before, (y - 0.5 - target.centre) / target.scale, (y + 0.5 - target.centre) / target.scale)
    mass += max(0.0, *gains_of(even, coded.x, read.z, weight, coded.n_levels).values(), 0.0)
    counted = _mains(settings, coded, MoreVaried(y, weight, may_be_poisson=True))
    after = Predictive(counted.likelihood, *counted.left_out)
    gain = float(np.sum(weight @ after.log_prob(y)) - mass) / n
    missed = float(np.sum(weight @ (y - after.mean()) ** 2))
    is_near = missed <= MUCH_WORSE * float(np.sum(weight @ (target.scale * (read.z - before.mean())) ** 2))
    return gain if is_near and gain > CLEAR_GAIN + LEAST_GAIN / n else None


def log_mass(
    said: Predictive, low: Float[np.ndarray, "n 1"], high: Float[np.ndarray, "n 1"]
) -> Float[np.ndarray, " n"]:
    """log P(low < Y < high) of every row, of Gaussian noise."""
    sd = np.sqrt(said.f_variance + said.likelihood.normal_variance)
    # of both ends below the mean, where the distribution function has all digits
    one, other = (low - said.f_mean) / sd, (high - said.f_mean) / sd
    upper = one + other > 0.0
    one, other = np.where(upper, -other, one), np.where(upper, -one, other)
    far, near = log_ndtr(one), log_ndtr(other)
    return (near + np.log1p(-np.exp(np.minimum(far - near, -1e-300))))[:, 0]


def _mains(settings: Settings, coded: Encoded, working: Working) -> Additive:
    """A fit of the main effects of all inputs."""
    return fit_additive(
        coded.x,
        working,
        working.weight,
        clusters=[(i,) for i in range(coded.x.shape[1])],
        n_levels=coded.n_levels,
        rng=np.random.default_rng(settings.seed),
        calibrate=False,
        describes=False,
    )
