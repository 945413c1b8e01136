"""What there is to find about a fit: each check gives findings, or none."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import xlogy
from scipy.stats import norm, rankdata

from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.control import Control
from vertebra.models.findings import Finding, Kind, Severity
from vertebra.models.scores import Method, ScoreName
from vertebra.tables.marked import marked

# Coverage of 95 % intervals outside these limits is worth a warning, with so many rows, and by so many standard errors:
# right intervals of 300 rows leave the limits in 1.5 % of fits, and by as much as that in 0.3 %.
COVERAGE_LIMITS, ROWS_FOR_COVERAGE, SURELY_OFF = (0.92, 0.98), 200, 3.0
# Noise is uneven where distances go with an input, or with how far it is from its middle, in a share of so many clean
# fits, and its variance in one of so many parts of the input is so many times that in another. Of more rows some do.
BY_CHANCE, UNEVEN, N_PARTS, ROWS_PER_PART, MOST_RANKED = 1e-4, 2.0, 4, 25, 5000
# Normal noise has Hogg's ratios 2.585 (of tails) and log 1 = 0 (of the upper to the lower), each with the sd 1.74/√n;
# 0.1 % of normal draws of 100 to 5,000 rows are so many sds away. Less than the least matters little: t(5) has 3.05,
# contamination of 2 % 3.3; exponential noise a log of 1.5.
HOGG, HOGG_SD, HOGG_SURELY, HOGG_LEAST, ROWS_FOR_TAILS = 2.585, 1.74, 3.5, 0.25, 100
# What the deciles of skewed noise lean, a log as above, times √n: three sds of t(2), whose sd is 3.2/√n. Lognormal
# noise leans by 1.3, exponential by 1.
LEAN = 9.6
# So few rows that make so much of the squared error, each so many times as far away as the others are typically, decide
# the fit, its RMSE and its R². Round numbers: of t(4) one of 100 tables of 100 rows has such a row.
MOST_FAR, ERROR_OF_FAR, TIMES_AS_FAR = 3, 0.5, 15.0
# Rows are noisier if their variance is larger by this factor, and their sd by so many standard errors.
NOISIER, CLEARLY = 1.5, 3.0
# An error this many times that of a linear model is clearly worse. Another model's error is lower by chance unless the
# losses of the rows differ by so many standard errors.
WORSE, NOT_BY_CHANCE = 1.1, 2.0
# By which share the error is larger than that of a quick flexible model: to be looked at, and severe. Errors below the
# least, in sds of the target or in nats, are no more told apart: both models are good.
BEHIND_FLEXIBLE, FAR_BEHIND, LEAST_ERROR = 0.05, 0.2, 0.05
# Predictions of rows left out that say all but this share of the variance are too good to be true; of classes, an AUC
# so near to 1, or a log loss of so small a share of that of the classes' shares. Round numbers. Fewer rows than so many
# may be parted by chance.
TOO_GOOD, TOO_GOOD_AUC, TOO_GOOD_LOSS, ROWS_TO_BE_PARTED = 1e-3, 5e-4, 0.01, 50
# Rows per coefficient, counted as rows decide them, below which it is said, and below which it is worth a warning: f1
# of 300 rows has 9, and its intervals, widened by what rows left out show, hold.
ROWS_PER_COEFFICIENT, TOO_FEW_PER_COEFFICIENT = 10.0, 5.0
# Rows of the rarest class for each input: half of what is asked for where all are fitted (Peduzzi et al., 1996).
ROWS_OF_A_CLASS = 5.0
# Log odds, or logs of rates, that no table can show: e²⁰ is 5 × 10⁸ to one.
MOST_LOG_ODDS = 20.0
# Of fewer rows nothing can be sound: two of them hold an interval of 95 % by chance alone. A round number.
FEWEST_ROWS = 20
# Rows for each input up to which a warning says that terms are missed and intervals of f too narrow: of f1 they cover
# 0.67 with 5 rows for each, 0.84 with 10, 0.98 with 20 (docs/limits.md).
ROWS_PER_INPUT = 10.0


def marked_gaps(values: Float[np.ndarray, " n"], name: str) -> list[Finding]:
    """Rows of an input whose values may stand for gaps."""
    found = []
    for codes in marked(values):
        shown = [f"{code:.0f}" for code in codes.values]
        what, listed, reads = "a gap", shown[0], "it as one"
        if len(shown) > 1:
            what, listed, reads = "gaps", f"[{', '.join(shown)}]", "them as such"
        words = f"{codes.n_rows} rows have {name} = {codes.words}, far from all others: {what}?"
        remedy = f"`missing_values={{{json.dumps(name, ensure_ascii=False)}: {listed}}}` reads {reads}."
        found.append(Finding(Kind.MARKED_GAPS, Severity.WARNING, words, float(codes.n_rows), remedy))
    return found


def no_answers(y: Float[np.ndarray, "n k"], targets: Sequence[str]) -> list[Finding]:
    """Rows of a target whose values may stand for no answer; severe where they are what the target varies by."""
    found = []
    for values, name in zip(y.T, targets, strict=True):
        apart = values / max(float(np.abs(values).max()), 1e-300)  # squares of large numbers overflow
        apart = (apart - apart.mean()) ** 2
        for codes in marked(values):
            share = float(apart[np.isin(values, codes.values)].sum() / apart.sum())
            words = (
                f"{codes.n_rows} rows have {name} = {codes.words}, far from all others, and make {share:.0%} of its "
                "variance."
            )
            # zeros may well be what they say
            severity = Severity.SEVERE if share > ERROR_OF_FAR and codes.values != (0.0,) else Severity.WARNING
            remedy = "If they stand for no answer, leave these rows out."
            found.append(Finding(Kind.MARKED_GAPS, severity, words, float(codes.n_rows), remedy))
    return found


def coverage(
    scores: Mapping[str, float], n: float, targets: Sequence[str], method: Method = Method.LEFT_OUT
) -> list[Finding]:
    """How many rows left out 95 % intervals hold, target by target."""
    found = []
    low, high = COVERAGE_LIMITS
    for key, value in scores.items():
        name = ScoreName.read(key)
        if name.score != "coverage_95":
            continue
        of = "the rows, each left out in turn" if method is Method.LEFT_OUT else "rows left out"
        words = f"95 % prediction intervals{name.whose(targets)} cover {value:.1%} of {of}"
        surely = abs(value - 0.95) > SURELY_OFF * math.sqrt(0.95 * 0.05 / max(n, 1.0))
        if n >= ROWS_FOR_COVERAGE and surely and not low <= value <= high:
            words, advice = f"{words}: the noise is not as assumed.", "Try another `likelihood`, or `conformal=True`."
            found.append(Finding(Kind.COVERAGE, Severity.WARNING, words, value, advice))
        else:
            found.append(Finding(Kind.COVERAGE, Severity.NOTE, f"{words}.", value))
    return found


class Beside(NamedTuple):
    """The losses of rows by a model, and by another, and the power that makes errors of their means.

    One column per target; squared errors in squares of the target's sd, or of classes minus log probabilities.
    """

    own: Float[np.ndarray, "m k"]
    other: Float[np.ndarray, "m k"]
    weight: Float[np.ndarray, " m"]
    power: float  # 0.5 of squared errors, 1 of log losses

    def errors(self, k: int) -> tuple[float, float]:
        """The model's error and the other's."""
        own, other = (float(np.average(each[:, k], weights=self.weight)) for each in (self.own, self.other))
        return own**self.power, other**self.power

    def is_worse(self, k: int) -> bool:
        """Whether the model's losses are larger by more than chance."""
        apart = self.weight * (self.own - self.other)[:, k]
        return float(apart.sum()) > NOT_BY_CHANCE * float(np.sqrt(np.sum((apart - apart.mean()) ** 2)))


def worse_than_linear(seen: Beside, targets: Sequence[str], units: Float[np.ndarray, " k"]) -> list[Finding]:
    """Where a linear model predicts rows it did not see clearly better."""
    found = []
    for k in range(seen.own.shape[1]):
        own, linear = seen.errors(k)
        if own > WORSE * linear and seen.is_worse(k):
            score, unit = ("rmse", units[k]) if seen.power < 1.0 else ("log_loss", 1.0)
            whose = f" of {targets[k]}" if len(targets) > 1 else ""
            words = (
                f"a linear model predicts rows{whose} left out better ({score} {unit * linear:.4g} against "
                f"{unit * own:.4g}): the model does not hold all that the inputs say, or there are too few rows for it."
            )
            advice = "Use the linear model, or give more rows."
            found.append(Finding(Kind.LINEAR, Severity.SEVERE, words, own / max(linear, 1e-300) - 1.0, advice))
    return found


def behind_flexible(seen: Beside, targets: Sequence[str]) -> list[Finding]:
    """Where a quick flexible model predicts rows it did not see clearly better: terms of few inputs are not enough."""
    found = []
    for k in range(seen.own.shape[1]):
        own, other = seen.errors(k)
        excess = (own - other) / max(other, LEAST_ERROR)
        if excess > BEHIND_FLEXIBLE and seen.is_worse(k):
            score = "RMSE" if seen.power < 1.0 else "log loss"
            whose = f" of {targets[k]}" if len(targets) > 1 else ""
            words = (
                f"boosted trees, quickly fitted, predict rows{whose} left out better: the {score} of this model is "
                f"{excess:.0%} larger. It does not hold all that the inputs say."
            )
            severity = Severity.SEVERE if excess > FAR_BEHIND else Severity.WARNING
            advice = "Read its effects as parts of the answer, and predict by another model, or give it other inputs."
            found.append(Finding(Kind.FLEXIBLE, severity, words, excess, advice))
    return found


def too_good(
    scores: Mapping[str, float], targets: Sequence[str], strongest: Sequence[str], *, shares: float, n: float
) -> list[Finding]:
    """Where n rows left out are predicted all but exactly: an input may be made of the target.

    `shares` is the log loss of the shares of the classes; of numbers there is none, NaN.
    """
    if (seen := _parted(scores, shares)) is not None and n >= ROWS_TO_BE_PARTED:
        return [_leak("the classes of rows left out", *seen, strongest)]
    found = []
    for key, value in scores.items():
        name = ScoreName.read(key)
        if name.score == "r2" and value > 1.0 - TOO_GOOD:
            found.append(_leak(f"rows left out{name.whose(targets)}", f"R² {value:.6f}", value, strongest))
    return found


def _parted(scores: Mapping[str, float], shares: float) -> tuple[str, float] | None:
    """By which score classes are told apart all but exactly, in words, and its value."""
    auc, loss = scores.get("auc", math.nan), scores.get("log_loss", math.nan)
    if auc > 1.0 - TOO_GOOD_AUC:
        return f"AUC {auc:.6f}", auc
    if loss < TOO_GOOD_LOSS * shares:
        return f"log loss {loss:.2g}, by their shares {shares:.2g}", loss
    return None


def are_told(loss: float, codes: Float[np.ndarray, " n"], weight: Float[np.ndarray, " n"]) -> bool:
    """Whether a log loss of classes is so small a share of that of their shares that nothing is left to be said."""
    shares = np.bincount(codes.astype(int), weight) / weight.sum()
    return loss < TOO_GOOD_LOSS * -float(np.sum(xlogy(shares, shares)))


def _leak(what: str, figure: str, value: float, strongest: Sequence[str]) -> Finding:
    shown = " or ".join(strongest[:2]) or "an input"
    words = f"{what} are predicted all but exactly ({figure}): is {shown} a part of the answer, or made from it?"
    return Finding(Kind.LEAK, Severity.SEVERE, words, value, "Then leave it out.")


def few_rows(n: float, n_inputs: int) -> list[Finding]:
    """Where so few rows were fitted that no figure of the fit can be trusted, or that terms may well be missed."""
    if n < FEWEST_ROWS:
        words = f"{n:.0f} rows are too few for any of these figures to be trusted."
        return [Finding(Kind.FEW_ROWS, Severity.SEVERE, words, float(n), f"Give at least {FEWEST_ROWS}.")]
    each = n / max(n_inputs, 1)
    if each > ROWS_PER_INPUT:
        return []
    words = (
        f"{n:,.0f} rows for {n_inputs} inputs, {each:.2g} for each: terms may be missed, and intervals of f, which are "
        "of the terms that were found, too narrow."
    )
    return [Finding(Kind.FEW_ROWS, Severity.WARNING, words, each, "Give more rows, or fewer inputs.")]


def few_events(counts: Float[np.ndarray, " classes"], n_classes: int, names: Sequence[str]) -> list[Finding]:
    """Where a class has so few rows for the inputs that what acts may well not be found."""
    each = float(np.min(counts)) / max(len(names), 1)
    if not n_classes or each >= ROWS_OF_A_CLASS:
        return []
    words = (
        f"the rarest class has {np.min(counts):.0f} rows, {each:.1f} for each input: terms may be missed, and limits "
        "of log odds, which are of the terms that were found, too narrow."
    )
    return [Finding(Kind.FEW_EVENTS, Severity.WARNING, words, each, "Give more rows of it, or fewer inputs.")]


def coefficients(left_out: Predictive, weight: Float[np.ndarray, " n"]) -> float:
    """How many coefficients the rows decide, Σ Var f · w/σ²: the trace of the smoother, of the largest output.

    Read off f at rows without them, whose variance is v₋ = v/(1 − h), so that h = u/(1 + u) with u = v₋ w/σ².
    """
    likelihood = left_out.likelihood
    if likelihood.has_classes:
        p = left_out.probabilities()
        information = (p * (1.0 - p))[:, -left_out.f_mean.shape[1] :]
        variance = left_out.f_variance
    else:
        # of a location 1/σ²; of a rate, with its logarithm as f, the variance of the count
        noise = left_out.aleatoric()
        information = 1.0 / np.maximum(noise, 1e-300) if likelihood.is_location else noise
        variance = left_out.f_variance[:, :: likelihood.latent_per_target]
    u = variance * information * np.minimum(weight, 1.0)[:, None]
    return float(np.max(np.maximum(weight, 1.0) @ (u / (1.0 + u))))


def much_freedom(n: float, n_coefficients: float) -> list[Finding]:
    """Where there are few rows for every coefficient that they decide."""
    ratio = n / max(n_coefficients, 1e-300)
    if ratio >= ROWS_PER_COEFFICIENT:
        return []
    words = f"{n:,.0f} rows decide about {n_coefficients:.0f} coefficients, {ratio:.1f} rows each"
    if ratio >= TOO_FEW_PER_COEFFICIENT:
        return [Finding(Kind.FREEDOM, Severity.NOTE, f"{words}.", ratio)]
    words = f"{words}: intervals may be too narrow, and weak terms there by chance."
    return [Finding(Kind.FREEDOM, Severity.WARNING, words, ratio, "Give more rows, or fewer inputs.")]


def runaway(largest: float, term: str) -> list[Finding]:
    """Where a component goes to log odds, or logs of rates, that no table can show."""
    if largest <= MOST_LOG_ODDS:
        return []
    words = f"the effect of {term} goes to ±{largest:,.0f} on the log scale, which is certainty many times over."
    advice = "Does it hold the answer, or do few rows decide it? Leave it out, or read its sign alone."
    return [Finding(Kind.RUNAWAY, Severity.SEVERE, words, largest, advice)]


def uneven_noise(
    away: Float[np.ndarray, "n k"], x: Float[np.ndarray, "n p"], names: Sequence[str], targets: Sequence[str]
) -> list[Finding]:
    """Where rows miss their predictions by much more at some values of an input than at others.

    `away`: how far each is off, in its own sds, without having been fitted. Ranks, which tails do not decide.
    """
    found: list[Finding] = []
    if len(x) < N_PARTS * ROWS_PER_PART:
        return found
    some = np.linspace(0, len(x) - 1, min(len(x), MOST_RANKED)).astype(int)
    limit = norm.isf(BY_CHANCE / (4.0 * max(x.shape[1], 1) * len(targets)))
    for k, target in enumerate(targets):
        distance = np.abs(away[some, k])
        worst = (0.0, 0.0, "")
        for name, values in zip(names, x[some].T, strict=True):
            seen = ~np.isnan(values)
            if seen.sum() < N_PARTS * ROWS_PER_PART or np.ptp(values[seen]) == 0.0:
                continue
            surely = _goes_with(values[seen], distance[seen])
            parts = np.array_split(distance[seen][np.argsort(values[seen], kind="stable")], N_PARTS)
            # squares of mean distances, not means of squares, which tails would decide
            means = np.array([part.mean() ** 2 for part in parts])
            ratio = float(means.max() / max(means.min(), 1e-12))
            if surely > limit and ratio > UNEVEN and surely > worst[0]:
                worst = (surely, ratio, name)
        if worst[2]:
            whose = f" of {target}" if len(targets) > 1 else ""
            words = (
                f"the noise{whose} is uneven: along {worst[2]} its variance changes {worst[1]:.2g}-fold, so that "
                "intervals are too wide in some places and too narrow in others."
            )
            advice = 'Try `likelihood="heteroscedastic"`.'
            found.append(Finding(Kind.UNEVEN_NOISE, Severity.WARNING, words, worst[1], advice))
    return found


def _goes_with(values: Float[np.ndarray, " n"], distance: Float[np.ndarray, " n"]) -> float:
    """By how many standard errors distances go with values, or with how far these are from their middle, in ranks."""
    place = rankdata(values) / len(values) - 0.5
    largest, ranks = 0.0, rankdata(distance)
    for score in (place, np.abs(place)):
        spread = float(score.std() * ranks.std())
        if spread > 0.0:
            r = float(np.mean((score - score.mean()) * (ranks - ranks.mean()))) / spread
            largest = max(largest, abs(r) * math.sqrt(len(values)))
    return largest


def odd_noise(away: Float[np.ndarray, "n k"], targets: Sequence[str], *, knows_tails: bool = False) -> list[Finding]:
    """Where noise has heavy tails, unless they were fitted, or is skewed, by Hogg's ratios of means of outer rows."""
    found: list[Finding] = []
    n = len(away)
    if n < ROWS_FOR_TAILS:
        return found
    limit = max(HOGG_LEAST, HOGG_SURELY * HOGG_SD / math.sqrt(n))
    for own, target in zip(np.sort(away, axis=0).T, targets, strict=True):
        outer, half, quarter = n // 20, n // 2, n // 4
        low, high, middle = own[:outer].mean(), own[-outer:].mean(), own[quarter:-quarter].mean()
        spread = own[-half:].mean() - own[:half].mean()
        if not (low < middle < high and spread > 0.0):
            continue
        tails, skew = float((high - low) / spread), float(np.log((high - middle) / (middle - low)))
        whose = f" of {target}" if len(targets) > 1 else ""
        # a few rows far away on one side make no skew: the bulk must lean the same way
        low, middle, high = np.quantile(own, [0.1, 0.5, 0.9])
        lean = float(np.log(max(high - middle, 1e-300) / max(middle - low, 1e-300))) * np.sign(skew)
        is_heavy = tails - HOGG > limit
        if abs(skew) > limit and (lean > LEAN / math.sqrt(n) or not (is_heavy or knows_tails)):
            side = "upwards" if skew > 0.0 else "downwards"
            times = math.exp(abs(skew))
            words = f"the noise{whose} is skewed: rows reach {times:.1f} times as far {side} as the other way."
            advice = 'Try `target_transform="auto"` where the target is positive, or `conformal=True`.'
            advice = advice if skew > 0.0 else "Try `conformal=True`."
            found.append(Finding(Kind.TAILS, Severity.WARNING, words, skew, advice))
        elif is_heavy and not knows_tails:
            words = (
                f"the noise{whose} has heavy tails: the outer rows are {tails / HOGG:.2f} times as far away as those "
                "of normal noise."
            )
            found.append(Finding(Kind.TAILS, Severity.WARNING, words, tails, 'Try `likelihood="student_t"`.'))
    return found


def far_rows(
    y: Float[np.ndarray, "n k"],
    said: Float[np.ndarray, "n k"],
    weight: Float[np.ndarray, " n"],
    targets: Sequence[str],
    *,
    has_thin_tails: bool,
) -> list[Finding]:
    """Where few rows make most of the squared error of rows left out: a mistake in the table, more often than not."""
    found: list[Finding] = []
    if len(y) < ROWS_FOR_TAILS:
        return found
    for own, mean, target in zip(y.T, said.T, targets, strict=True):
        # in units of the largest, as squares of large numbers overflow
        away = np.abs(own - mean)
        squares = weight * (away / max(float(away.max()), 1e-300)) ** 2
        first = np.argsort(-squares)[:MOST_FAR]
        shares = np.cumsum(squares[first]) / max(float(squares.sum()), 1e-300)
        n = 1 + int(np.argmax(shares >= ERROR_OF_FAR))
        others = np.delete(np.arange(len(own)), first[:n])
        typical = np.sqrt(np.average(away[others] ** 2, weights=weight[others])) if weight[others].sum() > 0.0 else 0.0
        if shares[-1] < ERROR_OF_FAR or away[first[:n]].min() < TIMES_AS_FAR * typical:
            continue
        values = " and ".join(f"{own[i]:,.6g} where {mean[i]:,.4g} was predicted" for i in first[:n])
        rows, make, them, they = ("one row", "makes", "it", "it is a mistake")
        if n > 1:
            rows, make, them, they = (f"{n} rows", "make", "them", "they are mistakes")
        most = "all but all" if shares[n - 1] > 0.995 else f"{shares[n - 1]:.0%}"
        words = f"{rows} {make} {most} of the squared error: {target} = {values}. RMSE and R² are about {them} alone."
        other = '; else try `likelihood="student_t"`, which few rows hardly move' if has_thin_tails else ""
        remedy = f"If {they}, mend the table{other}."
        found.append(Finding(Kind.TAILS, Severity.WARNING, words, float(shares[n - 1]), remedy))
    return found


def cut_short(control: Control, words: str) -> list[Finding]:
    """Where the fit was cut short."""
    if not control.ended:
        return []
    seconds = None if control.time_budget is None else float(control.time_budget)
    return [Finding(Kind.ENDED, Severity.WARNING, f"{control.why}: {words}", seconds, "Give it more time.")]


def is_noisier(away: Float[np.ndarray, "n k"], part: Bool[np.ndarray, " n"]) -> bool:
    """Whether the rows of a part are plainly farther off than the others, by their mean distances."""
    distance = np.abs(away)
    inside, outside = distance[part], distance[~part]
    error = np.sqrt(inside.var(axis=0) / len(inside) + outside.var(axis=0) / len(outside))
    apart = inside.mean(axis=0) - outside.mean(axis=0) > CLEARLY * error
    return bool(np.any(apart & (inside.mean(axis=0) ** 2 > NOISIER * outside.mean(axis=0) ** 2)))
