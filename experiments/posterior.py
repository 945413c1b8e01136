"""How far is each scheme's posterior from the true one? NUTS on the same small network, scheme by scheme.

    python experiments/posterior.py                 # all problems, three data sets each: some 40 minutes on two cores
    python experiments/posterior.py --only classes  # one problem, or gap:mean_field; the other records stay
    python experiments/posterior.py --quick         # one problem, three schemes, short chains: two to three minutes
    python experiments/posterior.py --render        # tables and figures again from the recorded csv

A scheme is fitted with `vb.fit`. Then its network is taken as a model: skeleton, W, Z, hyper-parameters, biases and
noise stay at the fit, and V of every layer, also where the scheme has point masses or dropout, is sampled from
p(V) p(y | V) by NUTS. What is compared is functions: f at test rows, effects, class probabilities. The full run writes
results/posterior.csv and results/posterior-curves.csv, and from these POSTERIOR.md and its figures; the quick one
writes a csv to a temporary folder and nothing else.
"""

import argparse
import collections
import csv
import functools
import importlib.metadata
import math
import multiprocessing
import os
import pathlib
import platform
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from blackjax.diagnostics import ess_bulk, rhat
from jaxtyping import Array, Float, Int, PRNGKeyArray
from scipy.special import expit

import vertebra as vb

SEEDS = (0, 1, 2)
N_PROCESSES = 2
# Of the fit: whole batches, and the best of some restarts, so that what is judged is the scheme and not its optimiser.
N_STEPS, N_RESTARTS = 8000, 4
# Of NUTS: half of the chains start at the fit, the others at draws of the prior that were annealed to the posterior.
# If these agree, neither start matters.
N_CHAINS, N_WARMUP, N_DRAWS, MAX_DOUBLINGS = 4, 400, 500, 9
# Of the annealing: a population is led through p(V) p(y | V)^power, resampled and moved by HMC at each power.
N_POPULATION, POWERS, N_MOVES, N_LEAPFROG = 64, np.geomspace(1e-3, 1.0, 30), 4, 24
MIXED = 1.05  # the largest split-R̂ of f that is not marked in the tables
STILL = 1e-4  # rows with a smaller sd of f under NUTS, where all features have died out, are not compared
N_NODES = 30  # quantile nodes per input, for the effects
NOISE = {"f1": 1.0, "gap": 0.15}

HERE = pathlib.Path(__file__).parent
RESULTS, REPORT = HERE / "results", HERE / "POSTERIOR.md"
MARKS = "<!-- tables -->", "<!-- end of tables -->"
QUICK_SCHEMES = ("mean_field", "deep_random_features", "inducing_points")


# --- problems ---------------------------------------------------------------------------------------------------------


class Problem(NamedTuple):
    """Training rows, test rows with the true f there, and which of these make up each region.

    `unit` is how much one unit of the network's f is in the units of the data; `grid` holds rows for the effects.
    """

    x: np.ndarray
    y: np.ndarray
    test_x: np.ndarray
    test_f: np.ndarray
    regions: dict[str, np.ndarray]
    likelihood: Any
    unit: float = 1.0
    grid: np.ndarray | None = None


CLUSTERS = ((0, 1), (2,), (3,), (4,))  # of f1


def f1(seed: int) -> Problem:
    """Friedman's function with noise 1, 200 rows, x and y standardised."""
    train, test = (vb.datasets.synthetic("f1", 200, noise=NOISE["f1"], seed=s) for s in (seed, 1000 + seed))
    centre, spread = train.y.mean(), train.y.std()
    x, test_x = ((data.x - 0.5) * math.sqrt(12.0) for data in (train, test))
    return Problem(
        x,
        (train.y - centre) / spread,
        test_x,
        (test.f - centre) / spread,
        {"test rows": np.ones(len(test_x), bool)},
        vb.Gaussian(),
        spread,
        _grid(x),
    )


def gap(seed: int) -> Problem:
    """sin 2x with noise 0.15, 60 rows in ±[0.5, 1.5]: nothing was seen between, nor beyond."""
    rng = np.random.default_rng(seed)
    x = rng.choice([-1.0, 1.0], 60) * rng.uniform(0.5, 1.5, 60)
    test_x = np.linspace(-2.5, 2.5, 101)
    distance = np.abs(test_x)
    regions = {"data": (distance >= 0.5) & (distance <= 1.5), "gap": distance < 0.5, "outside": distance > 1.5}
    y = np.sin(2.0 * x) + NOISE["gap"] * rng.standard_normal(60)
    return Problem(x[:, None], y, test_x[:, None], np.sin(2.0 * test_x), regions, vb.Gaussian())


def classes(seed: int) -> Problem:
    """Two classes, logit P(y = 1) = 2 sin(1.5 x₁) − 1.5 x₂, 150 rows in [−2, 2]²; the test rows reach to ±3.5."""
    rng = np.random.default_rng(seed)
    logit = lambda x: 2.0 * np.sin(1.5 * x[:, 0]) - 1.5 * x[:, 1]  # noqa: E731
    x, test_x = rng.uniform(-2.0, 2.0, (150, 2)), rng.uniform(-3.5, 3.5, (400, 2))
    y = (rng.random(150) < 1.0 / (1.0 + np.exp(-logit(x)))).astype(float)
    inside = np.abs(test_x).max(axis=1) <= 2.0
    return Problem(x, y, test_x, logit(test_x), {"data": inside, "outside": ~inside}, vb.Bernoulli())


PROBLEMS: dict[str, Callable[[int], Problem]] = {"f1": f1, "gap": gap, "classes": classes}


def schemes(problem: str) -> dict[str, tuple[vb.Skeleton, list[vb.Layer]]]:
    """Every scheme on the problem's skeleton, with at most 200 weights."""
    if problem == "f1":
        skeleton = functools.partial(vb.additive, 10, clusters=CLUSTERS)
        units, r, r_top, width, points = 10, 8, 40, 2, 10
    else:
        skeleton = functools.partial(vb.chain, {"gap": 1, "classes": 2}[problem])
        units, r, r_top, width, points = 20, 10, 100, 2, 20
    deep = skeleton(depth=2)
    return {
        "mc_dropout": (deep, vb.mc_dropout([units, 1])),
        "mean_field": (deep, vb.mean_field([units, 1])),
        "random_features": (deep, vb.random_features([width, 1], r=r)),
        "deep_random_features": (skeleton(depth=1), vb.deep_random_features([1], r=r_top)),
        "deep_kernel_learning": (deep, vb.deep_kernel_learning([units, 1])),
        "inducing_points": (
            skeleton(depth=2, activation="identity"),
            # Without the residual: its variance is outside V, and NUTS samples V.
            vb.inducing_points([width, 1], r=points, residual=False),
        ),
    }


# --- the target of NUTS -----------------------------------------------------------------------------------------------


class Target(eqx.Module):
    """p(V) p(y | V) of a fitted network, with V = centre + root·z the weights that exist, all layers in one vector."""

    network: vb.Network
    likelihood: Any
    x: Float[Array, "p n"]
    y: Float[Array, "n k"]
    places: Int[Array, " weights"]
    centre: Float[Array, " weights"]
    root: Float[Array, "weights weights"]

    def weights(self, z: Float[Array, " weights"]) -> Float[Array, " weights"]:
        return self.centre + self.root @ z

    def log_likelihood(self, v: Float[Array, " weights"]) -> Float[Array, ""]:
        return jnp.sum(self.likelihood.log_prob(at(self.network, self.places, v).mean(self.x).T, self.y))

    def log_prior(self, v: Float[Array, " weights"]) -> Float[Array, ""]:
        """log p(V) − log p(0): what `kl` gives a point mass, with its sign changed."""
        return -at(self.network, self.places, v).kl(key=jr.key(0))

    def log_density(self, z: Float[Array, " weights"]) -> Float[Array, ""]:
        """log p(V) p(y | V), up to a constant."""
        v = self.weights(z)
        return self.log_prior(v) + self.log_likelihood(v)


def at(network: vb.Network, places: Int[Array, " weights"], v: Float[Array, " weights"]) -> vb.Network:
    """The network with every V a point mass at the given weights."""
    shapes = [stack.function.posterior.mean.shape for stack in network.stacks]
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    parts = jnp.split(jnp.zeros(ends[-1]).at[places].set(v), ends[:-1])
    return eqx.tree_at(
        lambda n: [stack.function.posterior for stack in n.stacks],
        network,
        [jax.vmap(vb.PointMass)(part.reshape(shape)) for part, shape in zip(parts, shapes, strict=True)],
    )


def target_of(network: vb.Network, likelihood: Any, x: np.ndarray, y: np.ndarray) -> Target:
    """The target, with z in units of the prior's sd."""
    places = jnp.asarray(np.flatnonzero(np.concatenate([_exists(stack) for stack in network.stacks])))
    sd = _prior_sds(network, places)
    columns, targets = jnp.asarray(x.T, jnp.float32), jnp.asarray(y.reshape(len(y), -1), jnp.float32)
    return Target(network, likelihood, columns, targets, places, jnp.zeros(len(sd)), jnp.diag(sd))


def preconditioned(target: Target, v: Float[Array, "draws weights"]) -> Target:
    """The same target in a z of its own shape: root = P^{-1/2}, P = diag(1/s²) + E JᵀWJ over the draws, J = ∂f/∂V.

    W is the curvature of −log p(y | f). Where f is linear in V and the noise Gaussian, P is the precision of V, and z
    is standard normal.
    """
    sd = np.asarray(_prior_sds(target.network, target.places), np.float64)
    precision = np.diag(sd**-2) + np.asarray(_mean_curvature(target, v), np.float64)
    root = jnp.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T, jnp.float32)
    return eqx.tree_at(lambda t: (t.centre, t.root), target, (jnp.mean(v, axis=0), root))


@eqx.filter_jit
def _mean_curvature(target, v):
    def curvature(v):
        f = lambda v: at(target.network, target.places, v).mean(target.x)[0]  # noqa: E731
        second = jax.grad(jax.grad(lambda f, y: target.likelihood.log_prob(f[None], y)[0]))
        slope = jax.jacrev(f)(v)
        return slope.T @ (-jax.vmap(second)(f(v), target.y)[:, None] * slope)

    return jnp.mean(jax.lax.map(curvature, v), axis=0)


def _exists(stack) -> np.ndarray:
    """Which weights are not padding."""
    live, shape = stack.function.live, stack.function.posterior.mean.shape
    return np.broadcast_to(True if live is None else np.asarray(live.value)[:, None] > 0, shape).ravel()


def _prior_sds(network: vb.Network, places: Int[Array, " weights"]) -> Float[Array, " weights"]:
    """s of N(0, s²), the prior of each weight."""
    parts = []
    for block in (stack.function for stack in network.stacks):
        n_blocks, _, r = block.posterior.mean.shape
        counts = jnp.full(n_blocks, float(r)) if block.live is None else jnp.sum(block.live.value, axis=1)
        sd = jax.vmap(lambda prior, count: prior.sd(count))(block.prior, counts)
        parts.append(jnp.broadcast_to(sd[:, None, None], block.posterior.mean.shape).ravel())
    return jnp.concatenate(parts)[places]


# --- NUTS -------------------------------------------------------------------------------------------------------------


class Chains(NamedTuple):
    v: Float[Array, "chains draws weights"]
    log_density: Float[Array, "chains draws"]
    diverged: Array
    n_leapfrog: Array


@eqx.filter_jit
def annealed(target: Target, key: PRNGKeyArray) -> Float[Array, "population weights"]:
    """Draws of roughly p(V | y), by sequential Monte Carlo from the prior: modes come by their mass."""
    sd = _prior_sds(target.network, target.places)
    start_key, scan_key = jr.split(key)
    u = jr.normal(start_key, (N_POPULATION, len(sd)))  # V = sd · u

    def stage(state, power_and_key):
        (u, step_size, before), (power, key) = state, power_and_key
        pick_key, move_key = jr.split(key)
        gain = (power - before) * jax.vmap(lambda u: target.log_likelihood(sd * u))(u)
        u = u[jr.categorical(pick_key, gain, shape=(N_POPULATION,))]
        density = lambda u: target.log_prior(sd * u) + power * target.log_likelihood(sd * u)  # noqa: E731
        spread = jnp.var(u, axis=0) + 1e-4

        def move(state, key):
            u, step_size = state
            kernel = blackjax.hmc(density, step_size, spread, N_LEAPFROG)
            moved, info = jax.vmap(lambda u, key: kernel.step(key, kernel.init(u)))(u, jr.split(key, N_POPULATION))
            rate = jnp.mean(jnp.nan_to_num(info.acceptance_rate))
            return (moved.position, step_size * jnp.exp(rate - 0.75)), rate

        (u, step_size), rates = jax.lax.scan(move, (u, step_size), jr.split(move_key, N_MOVES))
        return (u, step_size, power), rates[-1]

    powers = jnp.asarray(POWERS, jnp.float32)
    state = u, jnp.asarray(0.1), jnp.asarray(0.0)
    (u, _, _), _ = jax.lax.scan(stage, state, (powers, jr.split(scan_key, len(powers))))
    return sd[None] * u


def fit_draws(target: Target, n: int, *, key: PRNGKeyArray) -> Float[Array, "n weights"]:
    """Draws of V from the scheme's own q."""
    posteriors = [stack.function.posterior for stack in target.network.stacks]

    def draw(key):
        parts = [
            jax.vmap(lambda q, key: q.sample(key))(q, jr.split(part_key, q.mean.shape[0])).ravel()
            for q, part_key in zip(posteriors, jr.split(key, len(posteriors)), strict=True)
        ]
        return jnp.concatenate(parts)[target.places]

    return jax.vmap(draw)(jr.split(key, n))


def posterior(target: Target, *, key: PRNGKeyArray, n_warmup: int, n_draws: int) -> Chains:
    """NUTS chains: the first half from the annealed population, the second from the fit."""
    prior_key, pick_key, fit_key, nuts_key = jr.split(key, 4)
    population = annealed(target, prior_key)
    target = preconditioned(target, population)
    n_annealed = N_CHAINS // 2
    v = jnp.concatenate(
        [
            jr.choice(pick_key, population, (n_annealed,), replace=False),
            fit_draws(target, N_CHAINS - n_annealed, key=fit_key),
        ]
    )
    z = jnp.linalg.solve(target.root, (v - target.centre[None]).T).T
    return nuts(target, z, nuts_key, n_warmup, n_draws)


@eqx.filter_jit
def nuts(target: Target, z: Array, key: PRNGKeyArray, n_warmup: int, n_draws: int) -> Chains:
    """One chain per row of z: adaptation of step size and diagonal mass, then draws."""

    def chain(z, key):
        warmup_key, draw_key = jr.split(key)
        adaptation = blackjax.window_adaptation(
            blackjax.nuts,
            target.log_density,
            initial_step_size=0.1,
            max_num_doublings=MAX_DOUBLINGS,
            adaptation_info_fn=lambda *_: None,
        )
        (state, parameters), _ = adaptation.run(warmup_key, z, num_steps=n_warmup)
        kernel = blackjax.nuts(target.log_density, **parameters)

        def draw(state, key):
            state, info = kernel.step(key, state)
            v = target.weights(state.position)
            return state, Chains(v, state.logdensity, info.is_divergent, info.num_integration_steps)

        return jax.lax.scan(draw, state, jr.split(draw_key, n_draws))[1]

    return jax.vmap(chain)(z, jr.split(key, len(z)))


@eqx.filter_jit
def terms_of_weights(target: Target, v: Float[Array, "draws weights"], x: Float[Array, "p n"]) -> Array:
    """The value of every top node at the columns of x, for each draw of V: (draws, nodes, n)."""
    return jax.lax.map(lambda v: at(target.network, target.places, v).terms(x, key=jr.key(0))[:, 0], v)


@eqx.filter_jit
def terms_of_scheme(network: vb.Network, key: PRNGKeyArray, x: Float[Array, "p n"], n_draws: int) -> Array:
    """The same for draws of the scheme's own q."""
    return jax.lax.map(lambda key: network.terms(x, key=key)[:, 0], jr.split(key, n_draws))


# --- effects of f1 ----------------------------------------------------------------------------------------------------


def _grid(x: np.ndarray) -> np.ndarray:
    """Rows where each sub-network sees quantile nodes of its own inputs: all pairs of x1, x2; the others in turn."""
    nodes = np.quantile(x, (np.arange(N_NODES) + 0.5) / N_NODES, axis=0)
    grid = np.tile(nodes, (N_NODES, 1))  # the nodes in turn, N_NODES times
    grid[:, 0] = np.repeat(nodes[:, 0], N_NODES)
    return grid


def strengths(terms: np.ndarray) -> dict[str, np.ndarray]:
    """sd of each pure ANOVA component under the product of the marginals, for terms (draws, nodes, N_NODES²)."""
    # Axis 1 is x1, axis 2 is x2, of the first sub-network.
    pair = terms[:, 0].reshape(-1, N_NODES, N_NODES)
    centred = pair - pair.mean(axis=(1, 2), keepdims=True)
    first, second = centred.mean(axis=2, keepdims=True), centred.mean(axis=1, keepdims=True)
    result = {"x1": first.std(axis=(1, 2)), "x2": second.std(axis=(1, 2))}
    for node, name in enumerate(("x3", "x4", "x5"), start=1):
        result[name] = terms[:, node, :N_NODES].std(axis=1)
    return result | {"{1,2}": (centred - first - second).std(axis=(1, 2))}


# Under uniform inputs, by Gauss–Legendre quadrature.
TRUE_STRENGTHS = {"x1": 2.1682, "x2": 2.1682, "x3": 1.4907, "x4": 2.8868, "x5": 1.4434, "{1,2}": 1.3361}


def strengths_on_grid(grid: np.ndarray) -> dict[str, float]:
    """The strengths of f1 itself under the marginals of the rows at hand."""
    x = grid / math.sqrt(12.0) + 0.5
    terms = [10 * np.sin(np.pi * x[:, 0] * x[:, 1]), 20 * (x[:, 2] - 0.5) ** 2, 10 * x[:, 3], 5 * x[:, 4]]
    return {name: float(value[0]) for name, value in strengths(np.stack(terms)[None]).items()}


# --- one problem, one scheme ------------------------------------------------------------------------------------------


class Job(NamedTuple):
    problem: str
    scheme: str
    seeds: tuple[int, ...]
    n_steps: int
    n_warmup: int
    n_draws: int


def run(job: Job) -> tuple[list[dict], list[dict]]:
    """Rows for the csv, and for problem `gap` the curves of the first seed."""
    rows, curves = [], []
    for seed in job.seeds:
        start = time.perf_counter()
        problem = PROBLEMS[job.problem](seed)
        skeleton, layers = schemes(job.problem)[job.scheme]
        networks = [vb.build(skeleton, layers, key=jr.key(i), x=problem.x) for i in range(N_RESTARTS)]
        fitted = vb.fit(
            networks,
            problem.likelihood,
            problem.x,
            problem.y,
            key=jr.key(seed),
            n_steps=job.n_steps,
            batch_size=len(problem.x),
        )
        fit_seconds = time.perf_counter() - start

        start = time.perf_counter()
        target = target_of(fitted.network, fitted.likelihood, problem.x, problem.y)
        chains = posterior(target, key=jr.key(100 + seed), n_warmup=job.n_warmup, n_draws=job.n_draws)
        jax.block_until_ready(chains)
        nuts_seconds = time.perf_counter() - start

        values = compare(problem, fitted, target, chains, key=jr.key(200 + seed))
        values.append(("all", "weights", len(target.places), None, None))
        values.append(("all", "seconds", fit_seconds, nuts_seconds, None))
        keys = ("region", "quantity", "value", "nuts", "truth")
        seconds = fit_seconds + nuts_seconds
        for value in values:
            numbers = (None if number is None else float(number) for number in value[2:])
            about = {"seed": seed, "seconds": seconds}
            rows.append(job._asdict() | about | dict(zip(keys, (*value[:2], *numbers), strict=True)))
        if job.problem == "gap" and seed == job.seeds[0]:
            curves = curves_of(problem, fitted, target, chains, key=jr.key(200 + seed))
            curves = [{"problem": "gap", "scheme": job.scheme, "seed": seed} | curve for curve in curves]
    for row in rows:
        del row["seeds"]
    return rows, curves


def draws_at(problem, fitted, target, chains, x, key) -> tuple[np.ndarray, np.ndarray]:
    """Terms of the top nodes at the rows x, (draws, nodes, n), of the scheme and of NUTS, equally many of each."""
    columns, v = jnp.asarray(x.T, jnp.float32), chains.v.reshape(-1, chains.v.shape[-1])
    return (
        np.asarray(terms_of_scheme(fitted.network, key, columns, len(v)), np.float64),
        np.asarray(terms_of_weights(target, v, columns), np.float64),
    )


def compare(problem, fitted, target, chains, *, key) -> list[tuple]:
    """(region, quantity, value, nuts, truth): the scheme's, that of NUTS, and the truth, where each exists."""
    ours, gold = (terms.sum(axis=1) for terms in draws_at(problem, fitted, target, chains, problem.test_x, key))
    by_chain = jnp.asarray(gold.reshape(*chains.v.shape[:2], -1))
    r_hat, ess = np.asarray(rhat(by_chain)), np.asarray(ess_bulk(by_chain))
    moves = gold.std(axis=0) > STILL
    values = []
    for region, inside in problem.regions.items():
        add = lambda quantity, value, nuts=None, truth=None: values.append((region, quantity, value, nuts, truth))  # noqa: B023, E731
        a, b, f = ours[:, inside], gold[:, inside], problem.test_f[inside]
        add("coverage", *(vb.metrics.coverage(f, *np.quantile(draws, [0.025, 0.975], axis=0)) for draws in (a, b)))
        if isinstance(problem.likelihood, vb.Bernoulli):
            p, q, true = expit(a), expit(b), expit(f)
            visible = q.std(axis=0) > STILL
            add("probability sd ratio", np.median((p.std(axis=0) / np.maximum(q.std(axis=0), STILL))[visible]))
            p, q = p.mean(axis=0), q.mean(axis=0)
            add("probability gap", np.mean(np.abs(p - q)))
            add("log loss", *(log_loss(true, of) for of in (p, q, true)))
            add("rmse", vb.metrics.rmse(true, p), vb.metrics.rmse(true, q))
        else:
            add("rmse", *(vb.metrics.rmse(f, draws.mean(axis=0)) * problem.unit for draws in (a, b)))

        compared = inside & moves
        a, b = ours[:, compared], gold[:, compared]
        if not moves[inside].all():
            add("rows compared", np.sum(compared) / np.sum(inside))
        add("mean gap", np.sqrt(np.mean(((a.mean(axis=0) - b.mean(axis=0)) / b.std(axis=0)) ** 2)))
        # What is left of that gap when both sides are right: the Monte Carlo error of the two means.
        add("mean gap floor", np.sqrt(np.mean(1.0 / ess[compared]) + 1.0 / len(a)))
        for level in (10, 50, 90):
            add(f"sd ratio {level} %", np.quantile(a.std(axis=0) / b.std(axis=0), level / 100))
        add("sd of f", *(np.median(draws.std(axis=0)) * problem.unit for draws in (a, b)))
        add("R-hat of f, max", None, r_hat[compared].max())
        add("R-hat of f, median", None, np.median(r_hat[compared]))
        add("ESS of f, min", None, ess[compared].min())
        add("ESS of f, median", None, np.median(ess[compared]))
    if problem.grid is not None:
        ours, gold = (strengths(t) for t in draws_at(problem, fitted, target, chains, problem.grid, key))
        on_grid = strengths_on_grid(problem.grid)
        for name, true in TRUE_STRENGTHS.items():
            a, b = ours[name] * problem.unit, gold[name] * problem.unit
            values.append(("effects", f"strength {name}", a.mean(), b.mean(), true))
            values.append(("effects", f"strength {name}, of the rows", None, None, on_grid[name]))
            values.append(("effects", f"strength {name}, sd", a.std(), b.std(), None))
    if isinstance(problem.likelihood, vb.Gaussian):
        values.append(("all", "noise", float(fitted.likelihood.scale[0]) * problem.unit, None, None))
    values.append(("all", "score spread of the restarts", max(fitted.scores) - min(fitted.scores), None, None))
    half = len(chains.v) // 2
    level = np.asarray(chains.log_density).mean(axis=1)
    values += [
        ("all", "divergences", None, np.sum(chains.diverged), None),
        ("all", "leapfrog steps", None, np.mean(chains.n_leapfrog), None),
        ("all", "R-hat of V, max", None, np.max(rhat(chains.v)), None),
        ("all", "log density, from the prior less from the fit", None, level[:half].mean() - level[half:].mean(), None),
    ]
    return values


def log_loss(true: np.ndarray, p: np.ndarray) -> float:
    """−E log p(y) where P(y = 1) is `true`; a certainty counts as 1 − 10⁻⁶."""
    p = np.clip(p, 1e-6, 1.0 - 1e-6)
    return float(-np.mean(true * np.log(p) + (1.0 - true) * np.log1p(-p)))


def curves_of(problem, fitted, target, chains, *, key) -> list[dict]:
    """Mean and 95 % band of f at each test row, of the scheme and of NUTS."""
    bands = []
    for terms in draws_at(problem, fitted, target, chains, problem.test_x, key):
        f = terms.sum(axis=1)
        bands.append((f.mean(axis=0), *np.quantile(f, [0.025, 0.975], axis=0)))
    names = ("mean", "lower", "upper", "nuts_mean", "nuts_lower", "nuts_upper")
    columns = dict(zip(names, (*bands[0], *bands[1]), strict=True))
    return [
        {"x": float(x), "f": float(f)} | {name: float(column[i]) for name, column in columns.items()}
        for i, (x, f) in enumerate(zip(problem.test_x[:, 0], problem.test_f, strict=True))
    ]


# --- the record and the report ----------------------------------------------------------------------------------------


def recorded(rows: list[dict]) -> list[dict]:
    """The rows as they stand in a csv: as text, with the versions they belong to."""
    common = {"python": platform.python_version(), "cores": str(os.cpu_count())}
    common |= {package: importlib.metadata.version(package) for package in ("jax", "equinox", "optax", "blackjax")}
    text = lambda value: "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)  # noqa: E731
    return [{key: text(value) for key, value in row.items()} | common for row in rows]


def write(path: pathlib.Path, rows: list[dict], order: list[tuple]) -> None:
    """Writes rows that were recorded; rows of the same problem and scheme that stood there before are replaced."""
    from stamps import recording  # beside this file, which tests read from where they are

    kept = [row for row in read(path) if _job_of(row) not in {_job_of(row) for row in rows}] if path.exists() else []
    rows = sorted(kept + rows, key=lambda row: order.index(_job_of(row)))
    path.parent.mkdir(exist_ok=True)
    with recording(path, __file__, is_new=not kept), path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _job_of(row: dict) -> tuple:
    return row["problem"], row["scheme"]


def read(path: pathlib.Path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


class Table:
    """The recorded values of each (problem, scheme, region, quantity), one per seed."""

    def __init__(self, rows: list[dict]):
        self.values = collections.defaultdict(lambda: collections.defaultdict(list))
        self.n_seeds = len({row["seed"] for row in rows})
        self.seconds = sum({(*_job_of(row), row["seed"]): float(row["seconds"]) for row in rows}.values())
        for row in rows:
            where = row["problem"], row["scheme"], row["region"], row["quantity"]
            for column in ("value", "nuts", "truth"):
                if row[column] != "":
                    self.values[where][column].append(float(row[column]))

    def __call__(self, problem, scheme, region, quantity, column="value", of=np.mean) -> float:
        return float(of(self.values[problem, scheme, region, quantity][column]))

    def problems(self) -> list[str]:
        return list(dict.fromkeys(where[0] for where in self.values))

    def schemes(self, problem) -> list[str]:
        return list(dict.fromkeys(where[1] for where in self.values if where[0] == problem))

    def regions(self, problem) -> list[str]:
        found = (w[2] for w in self.values if w[0] == problem and w[3] == "mean gap")
        return list(dict.fromkeys(found))


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def tables(table: Table) -> str:
    """The part of the report that is numbers."""
    parts = [
        f"Means over {table.n_seeds} data sets. Fits and chains took {table.seconds / 60:.0f} minutes together, two at "
        "a time on two shared cores. "
        "*Mean gap*: root mean square of (scheme's mean of f − NUTS' mean) in units of NUTS' sd, over the test rows, "
        "and in brackets what Monte Carlo error alone would leave of it. *sd ratio*: scheme's sd of f over NUTS', "
        "median over rows and 10–90 % range. *sd of f*: median over rows. *Coverage*: of the true f by 95 % intervals. "
        "*Rmse*: of the mean of f to the true f, for classes of P(y = 1). "
        f"Rows where NUTS' sd of f is below {STILL:g} count for coverage and rmse only. "
        f"†: some split-R̂ of f in the region is above {MIXED}."
    ]
    for problem in table.problems():
        rows = []
        for region in table.regions(problem):
            for scheme in table.schemes(problem):
                get = functools.partial(table, problem, scheme, region)
                mark = " †" if get("R-hat of f, max", "nuts", max) > MIXED else ""
                low, mid, high = (get(f"sd ratio {level} %") for level in (10, 50, 90))
                rows.append(
                    [
                        region,
                        f"`{scheme}`{mark}",
                        f"{get('mean gap'):.2f} ({get('mean gap floor'):.2f})",
                        f"**{mid:.2f}** ({low:.2f}–{high:.2f})",
                        f"{get('sd of f'):.3g}",
                        f"{get('sd of f', 'nuts'):.3g}",
                        f"{get('coverage'):.2f}",
                        f"{get('coverage', 'nuts'):.2f}",
                        f"{get('rmse'):.3f}",
                        f"{get('rmse', 'nuts'):.3f}",
                    ]
                )
        header = ["region", "scheme", "mean gap", "sd ratio", "sd of f", "NUTS", "coverage", "NUTS", "rmse", "NUTS"]
        title = PROBLEMS[problem].__doc__.rstrip(".")
        parts += [f"### `{problem}`: {title}", markdown(header, rows)]
        if problem == "f1":
            parts += ["Strengths of effects, mean ± sd of the posterior:", strength_table(table)]
        if problem == "classes":
            parts += ["Class probabilities:", probability_table(table)]
    return "\n\n".join([*parts, "### Chains", chain_table(table)])


def strength_table(table: Table) -> str:
    names = list(TRUE_STRENGTHS)
    first = table.schemes("f1")[0]
    rows = [
        ["truth, uniform inputs", "", *(f"{true:.2f}" for true in TRUE_STRENGTHS.values()), ""],
        [
            "truth, marginals of the rows",
            "",
            *(f"{table('f1', first, 'effects', f'strength {name}, of the rows', 'truth'):.2f}" for name in names),
            "",
        ],
    ]
    for scheme in table.schemes("f1"):
        get = functools.partial(table, "f1", scheme, "effects")
        ratios = [get(f"strength {name}, sd") / get(f"strength {name}, sd", "nuts") for name in names]
        for column, label, ratio in (("value", "scheme", f"**{np.median(ratios):.2f}**"), ("nuts", "NUTS", "")):
            cells = [f"{get(f'strength {n}', column):.2f} ± {get(f'strength {n}, sd', column):.2f}" for n in names]
            rows.append([f"`{scheme}`", label, *cells, ratio])
    return markdown(["", "posterior", *names, "sd ratio, median"], rows)


def probability_table(table: Table) -> str:
    rows = []
    for region in table.regions("classes"):
        for scheme in table.schemes("classes"):
            get = functools.partial(table, "classes", scheme, region)
            numbers = [get("probability gap"), get("probability sd ratio"), get("log loss"), get("log loss", "nuts")]
            rows.append([region, f"`{scheme}`", *(f"{n:.3f}" for n in numbers), f"{get('log loss', 'truth'):.3f}"])
    header = ["region", "scheme", "mean abs. gap of P(y = 1)", "sd ratio of P(y = 1)", "log loss", "NUTS", "truth"]
    return markdown(header, rows)


def chain_table(table: Table) -> str:
    rows = []
    for problem in table.problems():
        for scheme in table.schemes(problem):
            regions = table.regions(problem)
            over = lambda quantity, of: of([table(problem, scheme, r, quantity, "nuts", of) for r in regions])  # noqa: B023, E731
            get = functools.partial(table, problem, scheme, "all")
            noise = f"{get('noise'):.3f} ({NOISE[problem]:g})" if problem in NOISE else ""
            rows.append(
                [
                    problem,
                    f"`{scheme}`",
                    f"{get('weights'):.0f}",
                    noise,
                    f"{over('R-hat of f, max', max):.3f}",
                    f"{over('R-hat of f, median', np.median):.3f}",
                    f"{get('R-hat of V, max', 'nuts', max):.2f}",
                    f"{over('ESS of f, min', min):.0f}",
                    f"{over('ESS of f, median', np.median):.0f}",
                    f"{get('log density, from the prior less from the fit', 'nuts'):.1f}",
                    f"{get('divergences', 'nuts', sum):.0f}",
                    f"{get('leapfrog steps', 'nuts'):.0f}",
                    f"{get('seconds'):.0f}",
                    f"{get('seconds', 'nuts'):.0f}",
                ]
            )
    header = [
        "problem",
        "scheme",
        "weights",
        "fitted noise (true)",
        "R̂ of f, max",
        "R̂ of f, median",
        "R̂ of V, max",
        "ESS of f, min",
        "ESS of f, median",
        "log density, prior starts − fit starts",
        "divergences",
        "leapfrog steps a draw",
        "s, fit",
        "s, NUTS",
    ]
    return f"{markdown(header, rows)}\n\nMaxima and minima are over all data sets and rows, divergences summed."


def draw_curves(curves: list[dict], path: pathlib.Path) -> None:
    names = list(dict.fromkeys(row["scheme"] for row in curves))
    figure, axes = plt.subplots(2, 3, figsize=(11, 6), sharex=True, sharey=True, layout="constrained")
    problem = gap(int(curves[0]["seed"]))
    for name, axis in zip(names, axes.ravel(), strict=True):
        column = {
            k: np.array([float(r[k]) for r in curves if r["scheme"] == name])
            for k in ("x", "f", "mean", "lower", "upper", "nuts_mean", "nuts_lower", "nuts_upper")
        }
        axis.fill_between(
            column["x"],
            column["nuts_lower"],
            column["nuts_upper"],
            color="#999999",
            alpha=0.4,
            lw=0,
            label="NUTS, 95 %",
        )
        axis.plot(column["x"], column["nuts_mean"], color="#555555", lw=1, label="NUTS, mean")
        axis.plot(column["x"], column["mean"], color="#0072B2", label="scheme, mean")
        for edge in ("lower", "upper"):
            label = "scheme, 95 %" if edge == "lower" else None
            axis.plot(column["x"], column[edge], color="#0072B2", lw=1, ls=":", label=label)
        axis.plot(column["x"], column["f"], color="black", ls="--", lw=1, label="truth")
        axis.plot(problem.x[:, 0], problem.y, ".", color="#D55E00", ms=3, label="data")
        axis.set(title=name.replace("_", " "), xlabel="x", ylim=(-3.0, 3.0))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].legend(frameon=False, fontsize=7, loc="lower right")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_ratios(table: Table, path: pathlib.Path) -> None:
    places = [(problem, region) for problem in table.problems() for region in table.regions(problem)]
    figure, axes = plt.subplots(1, len(places), figsize=(2.3 * len(places), 3.2), sharey=True, layout="constrained")
    for (problem, region), axis in zip(places, axes, strict=True):
        names = table.schemes(problem)
        for height, scheme in enumerate(reversed(names)):
            low, mid, high = (table(problem, scheme, region, f"sd ratio {level} %") for level in (10, 50, 90))
            axis.plot([low, high], [height, height], color="#0072B2", lw=2)
            axis.plot(mid, height, "o", color="#0072B2")
        axis.axvline(1.0, color="black", lw=1, ls="--")
        axis.set(xscale="log", xlim=(0.1, 5.0), title=f"{problem}: {region}", xlabel="sd of f, scheme / NUTS")
        axis.set_xticks([0.125, 0.25, 0.5, 1, 2, 4], ["⅛", "¼", "½", "1", "2", "4"])
        axis.minorticks_off()
        axis.set_yticks(range(len(names)), [name.replace("_", " ") for name in reversed(names)])
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_strengths(table: Table, path: pathlib.Path) -> None:
    names, methods = list(TRUE_STRENGTHS), table.schemes("f1")
    figure, axes = plt.subplots(1, len(names), figsize=(2.0 * len(names), 3.2), sharey=True, layout="constrained")
    for name, axis in zip(names, axes, strict=True):
        for height, scheme in enumerate(reversed(methods)):
            for column, colour, shift in (("value", "#0072B2", 0.12), ("nuts", "#999999", -0.12)):
                mean = table("f1", scheme, "effects", f"strength {name}", column)
                sd = table("f1", scheme, "effects", f"strength {name}, sd", column)
                label = {"value": "scheme", "nuts": "NUTS"}[column] if height == 0 else None
                axis.errorbar(mean, height + shift, xerr=2 * sd, fmt="o", ms=4, color=colour, label=label)
        axis.axvline(TRUE_STRENGTHS[name], color="black", lw=1, ls="--")
        axis.set(title=name, xlabel="strength ± 2 sd")
        axis.set_yticks(range(len(methods)), [method.replace("_", " ") for method in reversed(methods)])
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=7)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def render() -> None:
    """Figures and the tables of POSTERIOR.md from the recorded csv; the text around the tables stays."""
    table = Table(read(RESULTS / "posterior.csv"))
    draw_curves(read(RESULTS / "posterior-curves.csv"), RESULTS / "posterior-gap.png")
    draw_ratios(table, RESULTS / "posterior-sd.png")
    draw_strengths(table, RESULTS / "posterior-strengths.png")
    text = REPORT.read_text() if REPORT.exists() else "\n".join(["# Posteriors against NUTS", "", *MARKS, ""])
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    REPORT.write_text(f"{before}{MARKS[0]}\n\n{tables(table)}\n\n{MARKS[1]}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one problem, three schemes, short chains")
    parser.add_argument("--only", metavar="PROBLEM[:SCHEME]", default="", help="what to run; other records stay")
    parser.add_argument("--render", action="store_true", help="tables and figures from the recorded csv")
    arguments = parser.parse_args()
    if arguments.render:
        return render()
    if arguments.quick:
        jobs = [Job("gap", scheme, (0,), 3000, 100, 200) for scheme in QUICK_SCHEMES]
    else:
        jobs = [Job(p, s, SEEDS, N_STEPS, N_WARMUP, N_DRAWS) for p in PROBLEMS for s in schemes(p)]
        jobs = [job for job in jobs if f"{job.problem}:{job.scheme}".startswith(arguments.only)]
        if not jobs:
            parser.error(f"--only must name a problem or problem:scheme, got {arguments.only!r}")
    order = [(p, s) for p in PROBLEMS for s in schemes(p)]
    rows, curves = [], []
    print(f"{'problem':8s} {'scheme':21s} {'region':10s} mean gap  sd ratio  coverage  NUTS   R̂ max  s, fit  s, NUTS")
    with ProcessPoolExecutor(N_PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        for found, found_curves in pool.map(run, jobs):
            rows, curves = rows + recorded(found), curves + recorded(found_curves)
            show(Table(recorded(found)))
    if arguments.quick:
        path = pathlib.Path(tempfile.mkdtemp()) / "posterior-quick.csv"
        print(path)
        return write(path, rows, order)
    write(RESULTS / "posterior.csv", rows, order)
    if curves:
        write(RESULTS / "posterior-curves.csv", curves, order)
    render()


def show(table: Table) -> None:
    for problem in table.problems():
        for scheme in table.schemes(problem):
            seconds = [table(problem, scheme, "all", "seconds", column) for column in ("value", "nuts")]
            for region in table.regions(problem):
                get = functools.partial(table, problem, scheme, region)
                print(
                    f"{problem:8s} {scheme:21s} {region:10s} {get('mean gap'):8.2f} {get('sd ratio 50 %'):9.2f} "
                    f"{get('coverage'):9.2f} {get('coverage', 'nuts'):5.2f} {get('R-hat of f, max', 'nuts', max):8.3f} "
                    f"{seconds[0]:7.0f} {seconds[1]:8.0f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
