"""The fit of any skeleton: one network, or an ensemble whose noise is taken from rows that its members had not seen."""

import numpy as np

from vertebra.effects.network_posterior import NetworkPosterior
from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.machine.threads import threads
from vertebra.models.conclusion import Outcome, conclude
from vertebra.models.diagnostics import cut_short
from vertebra.models.findings import Kind, notes
from vertebra.models.model import Model
from vertebra.models.networks import EMBEDDED, ENSEMBLES, SCHEMES, Shape, ensemble_of, train, training
from vertebra.models.reading import MOST_CODES, Read, Targets, encoded, read_classes, read_numbers
from vertebra.models.rows import marginal_rows, rows_together
from vertebra.models.scores import Method
from vertebra.models.settings import Settings, noise_named
from vertebra.models.uneven import noise_of
from vertebra.networks.embeddings import embedded
from vertebra.networks.skeleton import Skeleton, chain
from vertebra.tables.schema import TableLike, ValuesLike

# Which noise can be taken from rows left out.
NOISES_OF_ENSEMBLES = ("auto", "gaussian", "student_t")
# The width of layers of a scheme that has none of its own, on a skeleton of more layers.
WIDTH = 8


def fit_numbers(settings: Settings, X: TableLike, y: ValuesLike, sample_weight: ValuesLike) -> Model:
    """A network for a target of numbers."""
    read = read_numbers(settings, X, y, sample_weight)
    scheme, likelihood = settings.scheme, noise_named(settings.likelihood)()
    if scheme == "auto":
        # a skeleton of the user's own stays as it is, without a layer of embeddings
        scheme = "tabular" if settings.skeleton is None else "deep_ensemble"
        is_enough = len(read.rows.y) >= SCHEMES[scheme]["n_restarts"]
        scheme = scheme if is_enough and settings.likelihood in NOISES_OF_ENSEMBLES else "random_features"
    if scheme in ENSEMBLES:
        likelihood = Gaussian()  # while members train
    return _fit(settings, read, Targets(read.z, read.rows.weight), likelihood, scheme)


def fit_classes(settings: Settings, X: TableLike, y: ValuesLike, sample_weight: ValuesLike) -> Model:
    """A network for the logits of classes."""
    read = read_classes(settings, X, y, sample_weight)
    scheme, n_classes = settings.scheme, read.target.n_classes
    if scheme == "auto":
        scheme = "tabular" if settings.skeleton is None and _is_enough(read, n_classes) else "random_features"
    likelihood = Bernoulli() if n_classes == 2 else Categorical(n_classes)
    return _fit(settings, read, Targets.of_classes(read), likelihood, scheme)


def _fit(settings: Settings, read: Read, targets: Targets, likelihood: Likelihood, scheme: str) -> Model:
    rows, y, seed = read.rows, targets.y, settings.seed
    coded = encoded(read, targets, seed, most_levels=MOST_CODES if scheme in EMBEDDED else 0, fill=True)
    coded = coded.with_codes(read.n_levels)
    x = coded.x
    below, skeleton = _shape(settings, read.names, x.shape[1], scheme)
    shape = Shape(scheme, skeleton, (*below, likelihood.n_latent(y.shape[1]) // len(skeleton.outputs)))
    with settings.control() as control, threads(len(x)):
        given = likelihood, x, y, rows.weight, control
        fitted = train(settings, shape, *given, n_steps=settings.n_steps, stream=read.stream)
    findings = training(fitted) + cut_short(control, "train longer for a better fit.")
    if scheme not in ENSEMBLES:
        usual = SCHEMES[scheme]
        about = seed, scheme, shape.widths, usual["options"]
        near = rows_together(x, rows.weight, seed)
        posterior = NetworkPosterior(fitted.network, marginal_rows(x, rows.weight), *about, near)
        outcome = Outcome(posterior, fitted.likelihood, coded.encoding, rows, findings, ended=control.ended)
        return conclude(settings, read, outcome)
    posterior, said, log_apart = ensemble_of(fitted, shape, seed, x, y, rows.weight)
    left_out = Predictive(likelihood, said.mean, said.variance + said.fewer)
    n_kept = len(posterior.networks)
    words = f"{n_kept} networks are averaged; their logits are scaled by rows they had not seen."
    if not likelihood.has_classes:
        left_out, law = noise_of(said, log_apart, y, rows.weight, likelihood=settings.likelihood)
        posterior = posterior._replace(scale=law)
        words = f"{n_kept} networks are averaged; the noise is from rows they had not seen."
    findings += notes(Kind.FITTING, [words])
    outcome = Outcome(
        posterior,
        left_out.likelihood,
        coded.encoding,
        rows,
        findings,
        left_out=left_out,
        method=Method.FOLD_LEFT_OUT,
        ended=control.ended,
    )
    return conclude(settings, read, outcome)


def _is_enough(read: Read, n_classes: int) -> bool:
    """Whether every fold of an ensemble can have rows of every class."""
    counts = np.bincount(read.rows.y[:, 0].astype(int), minlength=n_classes)
    return bool(counts.min() >= SCHEMES["tabular"].get("folds", 0))


def _shape(settings: Settings, names: list[str], n_inputs: int, scheme: str) -> tuple[list[int], Skeleton]:
    """The widths below the outputs, and the skeleton: a chain over all inputs unless one is given."""
    usual, given, lift = SCHEMES[scheme]["widths"], settings.skeleton, int(scheme in EMBEDDED)
    if given is None:
        widths = list(usual if settings.widths is None else settings.widths)
        depth = len(widths) + 1 - lift
        if depth < 1:
            raise ValueError(f"`widths` must begin with that of the embeddings with scheme={scheme!r}, got none.")
        skeleton = chain(n_inputs, depth, activation=SCHEMES[scheme]["activation"])
        return widths, embedded(skeleton) if lift else skeleton
    if given.n_inputs != n_inputs:
        raise ValueError(
            f"`skeleton` must have one input per column as the model reads them, {n_inputs} "
            f"({', '.join(names[:10])}), got {given.n_inputs}."
        )
    below = given.depth - 1 + lift
    first = usual[0] if usual else WIDTH
    widths = [first, *[usual[-1] if lift else first] * (below - 1)][:below]
    widths = widths if settings.widths is None else list(settings.widths)
    if len(widths) != below:
        raise ValueError(f"`widths` must have one entry per layer below the top, {below}, got {len(widths)}.")
    return widths, embedded(given) if lift else given
