"""The fit of any skeleton: one network, or an ensemble whose noise is taken from rows that its members had not seen."""

from collections.abc import Sequence

from vertebra.effects.posterior import NetworkPosterior
from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, Likelihood
from vertebra.likelihoods.predictive import Predictive
from vertebra.models.additive import threads
from vertebra.models.calibration import noise
from vertebra.models.conclusion import Outcome, conclude
from vertebra.models.diagnostics import cut_short
from vertebra.models.findings import Kind, notes
from vertebra.models.model import Model
from vertebra.models.networks import SCHEMES, Shape, ensemble_of, train, training
from vertebra.models.reading import Read, Targets, encoded, read_classes, read_numbers
from vertebra.models.rows import marginal_rows
from vertebra.models.scores import Method
from vertebra.models.settings import NOISES, Settings
from vertebra.networks.skeleton import Skeleton, chain
from vertebra.tables.schema import TableLike, ValuesLike

# Which noise can be taken from rows left out.
NOISES_OF_ENSEMBLES = ("auto", "gaussian", "student_t")
# The width of layers of a scheme that has none of its own, on a skeleton of more layers.
WIDTH = 8


def fit_numbers(settings: Settings, X: TableLike, y: ValuesLike, sample_weight: ValuesLike) -> Model:
    """A network for a target of numbers."""
    read = read_numbers(settings, X, y, sample_weight)
    scheme, likelihood = settings.scheme, NOISES[settings.likelihood]()
    if scheme == "auto":
        is_enough = len(read.rows.y) >= SCHEMES["deep_ensemble"]["n_restarts"]
        scheme = "deep_ensemble" if is_enough and settings.likelihood in NOISES_OF_ENSEMBLES else "random_features"
    if scheme == "deep_ensemble":
        likelihood = Gaussian()  # while members train
    return _fit(settings, read, Targets(read.z, read.rows.weight), likelihood, scheme)


def fit_classes(settings: Settings, X: TableLike, y: ValuesLike, sample_weight: ValuesLike) -> Model:
    """A network for the logits of classes."""
    read = read_classes(settings, X, y, sample_weight)
    scheme = "random_features" if settings.scheme == "auto" else settings.scheme
    n_classes = read.target.n_classes
    likelihood = Bernoulli() if n_classes == 2 else Categorical(n_classes)
    return _fit(settings, read, Targets.of_classes(read), likelihood, scheme)


def _fit(settings: Settings, read: Read, targets: Targets, likelihood: Likelihood, scheme: str) -> Model:
    rows, y, seed = read.rows, targets.y, settings.seed
    coded = encoded(read, targets, seed, most_levels=0, fill=True)
    x, usual = coded.x, SCHEMES[scheme]
    below, skeleton = _shape(settings, read.names, x.shape[1], usual["widths"], usual["activation"])
    shape = Shape(scheme, skeleton, (*below, likelihood.n_latent(y.shape[1]) // len(skeleton.outputs)))
    with settings.control() as control, threads(len(x)):
        given = likelihood, x, y, rows.weight, control
        fitted = train(settings, shape, *given, n_steps=settings.n_steps, stream=read.stream)
    findings = training(fitted) + cut_short(control, "train longer for a better fit.")
    if scheme != "deep_ensemble":
        about = seed, scheme, shape.widths, usual["options"]
        posterior = NetworkPosterior(fitted.network, marginal_rows(x, rows.weight), *about)
        outcome = Outcome(posterior, fitted.likelihood, coded.encoding, rows, findings, ended=control.ended)
        return conclude(settings, read, outcome)
    posterior, said = ensemble_of(fitted, shape, seed, x, y, rows.weight)
    asked = settings.likelihood
    likelihood = noise(said, y, rows.weight, kinds=("gaussian", "student_t") if asked == "auto" else (asked,))
    words = f"{len(fitted.networks)} networks are averaged; the noise is from rows they had not seen."
    findings += notes(Kind.FITTING, [words])
    outcome = Outcome(
        posterior,
        likelihood,
        coded.encoding,
        rows,
        findings,
        left_out=Predictive(likelihood, said.mean, said.variance + said.fewer),
        method=Method.FOLD_LEFT_OUT,
        ended=control.ended,
    )
    return conclude(settings, read, outcome)


def _shape(
    settings: Settings, names: list[str], n_inputs: int, usual: Sequence[int], activation: str
) -> tuple[list[int], Skeleton]:
    """The widths below the outputs, and the skeleton: a chain over all inputs unless one is given."""
    if settings.skeleton is None:
        widths = list(usual if settings.widths is None else settings.widths)
        return widths, chain(n_inputs, len(widths) + 1, activation=activation)
    if settings.skeleton.n_inputs != n_inputs:
        raise ValueError(
            f"`skeleton` must have one input per column as the model reads them, {n_inputs} "
            f"({', '.join(names[:10])}), got {settings.skeleton.n_inputs}."
        )
    below = settings.skeleton.depth - 1
    widths = list([usual[0] if usual else WIDTH] * below if settings.widths is None else settings.widths)
    if len(widths) != below:
        raise ValueError(f"`widths` must have one entry per layer below the top, {below}, got {len(widths)}.")
    return widths, settings.skeleton
