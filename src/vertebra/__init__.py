"""Vertebra: Bayesian neural networks, block by block, on a computation skeleton."""

from vertebra import activations, datasets, distributions, kernels, likelihoods, metrics, plot, schemes
from vertebra.anova import Effect, attribute, decompose, sobol
from vertebra.archive import load
from vertebra.blocks import FunctionBlock, InducingPointBlock, PolynomialBlock, RandomFeatureBlock
from vertebra.distributions import Dropout, GroupLasso, Laplace, Normal, PointMass, kl
from vertebra.estimators import AdditiveClassifier, AdditiveRegressor, SkeletonClassifier, SkeletonRegressor
from vertebra.inference import Diverged, Fitted, Progress, elbo, fit, moments, sample
from vertebra.kernels import RBF, Dual, Linear, Matern, Periodic, Polynomial
from vertebra.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Poisson, StudentT
from vertebra.network import Layer, Network, build
from vertebra.parameters import Fixed, trainable
from vertebra.prior import draw_prior, dual_kernel, empirical_kernel, sample_prior
from vertebra.schemes import (
    deep_kernel_learning,
    deep_random_features,
    inducing_points,
    mc_dropout,
    mean_field,
    random_features,
    select_inputs,
)
from vertebra.skeleton import Node, Output, Skeleton, additive, chain, multitask
from vertebra.storage import BadFile

__version__ = "0.1.0"
