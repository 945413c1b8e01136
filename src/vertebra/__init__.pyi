"""Vertebra: Bayesian neural networks, block by block, on a computation skeleton."""

from vertebra import (
    activations as activations,
    cluster as cluster,
    datasets as datasets,
    distributions as distributions,
    kernels as kernels,
    likelihoods as likelihoods,
    metrics as metrics,
    plot as plot,
    schemes as schemes,
    serving as serving,
    stream as stream,
)
from vertebra.effects.decomposition import (
    attribute as attribute,
    decompose as decompose,
)
from vertebra.effects.effect import (
    Effect as Effect,
    sobol as sobol,
)
from vertebra.effects.network_posterior import (
    as_network as as_network,
)
from vertebra.estimators import (
    AdditiveClassifier as AdditiveClassifier,
    AdditiveRegressor as AdditiveRegressor,
    SkeletonClassifier as SkeletonClassifier,
    SkeletonRegressor as SkeletonRegressor,
    load as load,
)
from vertebra.files.built import save as save
from vertebra.inference import (
    Diverged as Diverged,
    Fitted as Fitted,
    LinearisedLaplace as LinearisedLaplace,
    LogDensity as LogDensity,
    Progress as Progress,
    elbo as elbo,
    fit as fit,
    fit_stream as fit_stream,
    linearised_laplace as linearised_laplace,
    log_density as log_density,
    moments as moments,
    sample as sample,
)
from vertebra.likelihoods import (
    Bernoulli as Bernoulli,
    Categorical as Categorical,
    Gaussian as Gaussian,
    HeteroscedasticGaussian as HeteroscedasticGaussian,
    NegativeBinomial as NegativeBinomial,
    Ordinal as Ordinal,
    Poisson as Poisson,
    StudentT as StudentT,
    Survival as Survival,
)
from vertebra.machine.file import (
    BadFile as BadFile,
)
from vertebra.models.rows import (
    NewLevels as NewLevels,
    OutsideRange as OutsideRange,
)
from vertebra.networks.blocks import (
    FunctionBlock as FunctionBlock,
    InducingPointBlock as InducingPointBlock,
    RandomFeatureBlock as RandomFeatureBlock,
)
from vertebra.networks.build import (
    build as build,
)
from vertebra.networks.divergence import (
    kl as kl,
)
from vertebra.networks.embeddings import (
    ByKind as ByKind,
)
from vertebra.networks.embeddings import (
    LevelsBlock as LevelsBlock,
)
from vertebra.networks.embeddings import (
    PeriodicBlock as PeriodicBlock,
)
from vertebra.networks.embeddings import (
    PiecewiseLinearBlock as PiecewiseLinearBlock,
)
from vertebra.networks.embeddings import (
    RobustScaling as RobustScaling,
)
from vertebra.networks.embeddings import (
    embedded as embedded,
)
from vertebra.networks.kernels import (
    RBF as RBF,
    Dual as Dual,
    Linear as Linear,
    Matern as Matern,
    Periodic as Periodic,
    Polynomial as Polynomial,
)
from vertebra.networks.layer import (
    Layer as Layer,
)
from vertebra.networks.network import (
    Network as Network,
)
from vertebra.networks.parameters import (
    Fixed as Fixed,
    trainable as trainable,
)
from vertebra.networks.posteriors import (
    Dropout as Dropout,
    PointMass as PointMass,
)
from vertebra.networks.prior_functions import (
    draw_prior as draw_prior,
    dual_kernel as dual_kernel,
    empirical_kernel as empirical_kernel,
    sample_prior as sample_prior,
)
from vertebra.networks.priors import (
    GroupLasso as GroupLasso,
    Laplace as Laplace,
    Normal as Normal,
)
from vertebra.networks.schemes import (
    deep_ensemble as deep_ensemble,
    deep_kernel_learning as deep_kernel_learning,
    deep_random_features as deep_random_features,
    inducing_points as inducing_points,
    mc_dropout as mc_dropout,
    mean_field as mean_field,
    random_features as random_features,
    select_inputs as select_inputs,
    tabular as tabular,
)
from vertebra.networks.skeleton import (
    Node as Node,
    Output as Output,
    Skeleton as Skeleton,
    additive as additive,
    chain as chain,
    multitask as multitask,
)
from vertebra.tables.tablefile import (
    read_table as read_table,
)
from vertebra.terms.block import (
    BasisBlock as BasisBlock,
)

__version__: str
