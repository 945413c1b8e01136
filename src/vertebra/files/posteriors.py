"""The posterior of f as JSON and arrays, and back: sums of terms, and what networks add to them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from jaxtyping import Int

from vertebra.effects.effect import N_DRAWS
from vertebra.effects.made_of import MadeOf
from vertebra.effects.posterior import Posterior, TermsPosterior
from vertebra.files.params import plain
from vertebra.files.parts import encoding_from, encoding_state, term_from
from vertebra.machine import claims
from vertebra.machine.claims import FINITE, LARGEST, TINY, Arrays
from vertebra.machine.file import Record
from vertebra.machine.later import later
from vertebra.tables.encoding import FARTHEST, Encoding
from vertebra.terms.evidence import Basis, Block
from vertebra.terms.families import Family
from vertebra.terms.functions import CONSTANT, NEVER_SEEN, SEEN, System, rank_curve
from vertebra.terms.functions import FARTHEST as MOST_BEYOND
from vertebra.terms.joint import Joint, below
from vertebra.terms.sum_of_terms import LEVELS, Chosen, SumOfTerms
from vertebra.terms.term import Term

if TYPE_CHECKING:
    from vertebra.effects import ensemble
    from vertebra.files import networks
else:
    # they come with JAX, which terms do without
    ensemble, networks = later("vertebra.effects.ensemble"), later("vertebra.files.networks")

SYSTEM_ARRAYS = ("quantiles", "transform", "knots", "table", "missing", "unseen", "kind", "cost", "offset", "gram")
REMAINDER_ARRAYS = ("share", "sizes", "probability")
SYSTEM_NUMBERS = ("n_levels", "low", "width", "observed")
# What files of 0.1 do not have, of systems whose last function grows beyond the range.
LATER_ARRAYS, LATER_NUMBERS = ("family", "cell"), ("is_discrete",)

# No mean of products of functions, nor weight of one in place of another, is so large: squares are far from overflow.
LARGEST_MEAN = 1e30


def posterior_state(posterior: Posterior, arrays: dict[str, np.ndarray]) -> Record:
    if posterior.terms is None:
        return networks.networks_state(posterior, arrays)
    if (added := posterior.remainder) is not None:
        arrays |= {f"remainder/{name}": getattr(added, name) for name in (*REMAINDER_ARRAYS, "had_gaps")}
        if added.made_of is not None:
            arrays |= {f"remainder/{name}": part for name, part in added.made_of._asdict().items()}
        terms, others = _terms_out(posterior.terms, posterior.seed, arrays), posterior_state(added.networks, arrays)
        encoding = encoding_state(added.encoding, arrays, "remainder/")
        return {"kind": "hybrid", "terms": terms, "networks": others, "is_ordered": encoding}
    return _terms_out(posterior.terms, posterior.seed, arrays)


def _terms_out(terms: SumOfTerms, seed: int, arrays: dict[str, np.ndarray]) -> Record:
    basis = terms.basis
    for i, system in enumerate(basis.systems):
        names = SYSTEM_ARRAYS if _is_old(system) else (*SYSTEM_ARRAYS, *LATER_ARRAYS)
        arrays |= {f"system/{i}/{name}": getattr(system, name) for name in names}
    arrays |= {f"block/{i}": block.index for i, block in enumerate(basis.blocks)}
    for k in range(terms.n_outputs):
        arrays |= {f"mean/{k}": terms.means[k], f"root/{k}": terms.roots[k]}
    state: Record = {
        "kind": "terms",
        "seed": seed,
        "systems": [_numbers(system) for system in basis.systems],
        "terms": [list(map(int, block.term)) for block in basis.blocks],
        "n_outputs": terms.n_outputs,
    }
    if terms.joint is not None:
        # symmetric: half of it says all
        arrays["joint"] = terms.joint.gram[np.triu_indices(len(terms.joint.gram))]
        arrays |= {f"lower/{i}": lower for i, lower in enumerate(terms.joint.lower)}
        arrays |= {f"scatter/{k}": root for k, root in enumerate(terms.joint.scatter)}
        arrays |= {f"doubt/{i}": root for i, root in enumerate(terms.joint.doubt)}
        state["joint_rows"] = terms.joint.n_rows
    if any(terms.chosen):
        state["chosen"] = [
            [k, list(map(int, term)), *map(float, quantiles)]
            for k, own in enumerate(terms.chosen)
            for term, quantiles in own.items()
        ]
    return state | {"are_draws": list(terms.are_draws)} if terms.are_draws else state


def _is_old(system: System) -> bool:
    """Whether a system is one that 0.1 had: of a number whose functions do not grow, or of levels without cells."""
    return not system.grows and not len(system.cell)


def _numbers(system: System) -> Record:
    names = SYSTEM_NUMBERS if _is_old(system) else (*SYSTEM_NUMBERS, *LATER_NUMBERS)
    return {name: plain(getattr(system, name)) for name in names}


def posterior_from(
    value: object,
    arrays: Arrays,
    n_levels: Sequence[int],
    is_ordered: Sequence[bool],
    n_latent: int,
    kinds: Sequence[str],
    *,
    per_target: int,
) -> tuple[Posterior, Encoding]:
    """The posterior, of as many outputs as the likelihood has latent functions, and how rows become what it reads."""
    if not isinstance(value, dict):
        raise claims.unfit("the surface", "an object", value)
    kind = claims.one_of(value.get("kind"), "the kind of the surface", kinds)
    if kind in ("network", "ensemble"):
        encoded = [n > 0 for n in n_levels]
        encoding = encoding_from(arrays, n_levels, is_ordered, encoded=encoded, fill=True, place="")
        return networks.networks_from(value, arrays, len(n_levels), n_latent), encoding
    parts = claims.record(value, "the surface", ("kind", "terms", "networks", "is_ordered")) if kind == "hybrid" else {}
    terms = _terms_in(parts["terms"] if parts else value, arrays, n_levels, n_latent)
    left = [system.n_levels for system in terms.terms.basis.systems]
    encoded = [n > 0 and not own for n, own in zip(n_levels, left, strict=True)]
    encoding = encoding_from(arrays, n_levels, is_ordered, encoded=encoded, fill=False, place="")
    return (_hybrid_in(parts, arrays, terms, left, n_latent, per_target) if parts else terms), encoding


def _hybrid_in(
    value: Record, arrays: Arrays, terms: TermsPosterior, n_levels: Sequence[int], n_outputs: int, per_target: int
) -> TermsPosterior:
    p = len(n_levels)
    ordered = [claims.flag(each, "is_ordered") for each in claims.listed(value["is_ordered"], "is_ordered", p)]
    claims.demand(not any(ordered), "the remainder's is_ordered", "all false", ordered)
    # of several latent functions of a target networks say the first, its mean
    added = networks.networks_from(value["networks"], arrays, p, n_outputs // per_target)
    if not isinstance(added, ensemble.EnsemblePosterior):
        raise ValueError(f"the remainder must be of an ensemble, got {repr(value['networks'])[:100]}")
    encoded = [n > 0 for n in n_levels]
    encoding = encoding_from(arrays, n_levels, ordered, encoded=encoded, fill=True, place="remainder/")
    remainder = ensemble.Remainder(
        added,
        encoding,
        share=arrays.take("remainder/share", n_outputs, low=0.0, high=1.0),
        sizes=arrays.take("remainder/sizes", N_DRAWS, n_outputs, low=0.0),
        probability=arrays.take("remainder/probability", n_outputs, low=0.0, high=1.0),
        had_gaps=arrays.take("remainder/had_gaps", p, kind="b", low=0, high=1),
        made_of=_made_of_in(arrays, n_outputs, p) if "remainder/total" in arrays else None,
    )
    return terms._replace(remainder=remainder)


def _made_of_in(arrays: Arrays, n_outputs: int, p: int) -> MadeOf:
    main = arrays.take("remainder/main", n_outputs, p, low=0.0, high=1.0)
    return MadeOf(main, arrays.take("remainder/total", n_outputs, p, low=0.0, high=LARGEST))


def _terms_in(value: object, arrays: Arrays, n_levels: Sequence[int], n_outputs: int) -> TermsPosterior:
    needed = ("kind", "seed", "systems", "terms", "n_outputs")
    value = claims.record(value, "the sum of terms", needed, ("are_draws", "joint_rows", "chosen"))
    claims.demand(value["kind"] == "terms", "the kind of the surface", "terms", value["kind"])
    claims.demand(value["n_outputs"] == n_outputs, "n_outputs", f"{n_outputs}", value["n_outputs"])
    records = claims.listed(value["systems"], "the systems", len(n_levels))
    systems = tuple(_system_in(each, arrays, i, n) for i, (each, n) in enumerate(zip(records, n_levels, strict=True)))
    blocks = []
    for i, record in enumerate(claims.listed(value["terms"], "the terms")):
        term = term_from(record, len(systems))
        index = arrays.take(f"block/{i}", None, len(term), kind="i")
        sizes = np.array([len(systems[j].kind) for j in term])
        claims.demand(
            (index >= 0).all() and (index < sizes).all(), f"block/{i}", "places of functions", index[:3].tolist()
        )
        blocks.append(Block(term, index))
    basis = Basis(systems, tuple(blocks))
    claims.demand(len(set(basis.terms)) == len(blocks), "the terms", "distinct", basis.terms)
    m = basis.n_columns + 1
    means = tuple(arrays.take(f"mean/{k}", m) for k in range(n_outputs))
    roots = tuple(arrays.take(f"root/{k}", m, None) for k in range(n_outputs))
    _check_bounded(basis, means, roots)
    are_draws: tuple[bool, ...] = ()
    if "are_draws" in value:
        listed = claims.listed(value["are_draws"], "are_draws", n_outputs)
        are_draws = tuple(claims.flag(each, "are_draws") for each in listed)
    joint = _joint_in(basis, arrays, n_outputs, value["joint_rows"]) if "joint_rows" in value else None
    chosen = _chosen_in(value["chosen"], basis, n_outputs) if "chosen" in value else ()
    terms = SumOfTerms(basis, means, roots, are_draws, joint, chosen)
    return TermsPosterior(terms, claims.whole(value["seed"], "the seed"))


def _chosen_in(value: object, basis: Basis, n_outputs: int) -> tuple[Chosen, ...]:
    found: list[dict[Term, np.ndarray]] = [{} for _ in range(n_outputs)]
    for record in claims.listed(value, "the terms chosen"):
        k, term, *quantiles = claims.listed(record, "a term chosen", 2 + len(LEVELS))
        known = term_from(term, len(basis.systems))
        claims.demand(known in basis.terms, "a term chosen", "one of the terms", known)
        numbers = [claims.number(each, "a quantile of a strength", 0) for each in quantiles]
        claims.demand(numbers == sorted(numbers), "the quantiles of a strength", "rising", numbers)
        found[claims.whole(k, "an output", 0, n_outputs - 1)][known] = np.array(numbers)
    return tuple(found)


def _joint_in(basis: Basis, arrays: Arrays, n_outputs: int, n_rows: object) -> Joint:
    """How columns go together over the rows; its numbers are bounded, so that strengths are far from overflow."""
    m = basis.n_columns + 1
    half = arrays.take("joint", m * (m + 1) // 2, low=-LARGEST_MEAN, high=LARGEST_MEAN)
    gram = np.zeros((m, m))
    gram[np.triu_indices(m)] = half
    gram = gram + np.triu(gram, 1).T
    # sums of weights over their sum: 1 but for rounding
    claims.demand(abs(gram[0, 0] - 1.0) < 1e-6, "joint", "means over rows, the constant first", gram[0, 0])
    lower = tuple(
        arrays.take(f"lower/{k}", len(below(basis, k)), len(block.index), low=-LARGEST_MEAN, high=LARGEST_MEAN)
        for k, block in enumerate(basis.blocks)
    )
    size, most = 2 * len(basis.blocks), LARGEST_MEAN
    scatter = tuple(arrays.take(f"scatter/{k}", size, size, low=-most, high=most) for k in range(n_outputs))
    doubt = tuple(
        arrays.take(f"doubt/{k}", n_outputs, len(lower[k]) - 1, None, low=-most, high=most) for k in range(len(lower))
    )
    return Joint(gram, lower, scatter, doubt, claims.number(n_rows, "the rows of the fit", TINY, FINITE))


def _system_in(value: object, arrays: Arrays, i: int, n_levels: int) -> System:
    """The functions of an input; of a category those of its levels, unless they are encoded as a number."""
    is_new = isinstance(value, dict) and "is_discrete" in value
    value = claims.record(value, f"the system {i}", (*SYSTEM_NUMBERS, *LATER_NUMBERS) if is_new else SYSTEM_NUMBERS)
    at = f"system/{i}/"
    own = claims.whole(value["n_levels"], f"the levels of the system {i}")
    claims.demand(own in (0, n_levels), f"the levels of the system {i}", f"0 or {n_levels}", own)
    far = 2.0 * FARTHEST
    kind = arrays.take(f"{at}kind", None, kind="i", low=CONSTANT, high=NEVER_SEEN)
    k = len(kind)
    claims.demand(k >= 2 and kind[0] == CONSTANT and kind[1:].min() >= SEEN, f"{at}kind", "a constant and others", kind)
    knots = claims.rising(arrays.take(f"{at}knots", own or None, low=-far, high=far), f"{at}knots", strictly=True)
    transform = arrays.take(f"{at}transform", *((1, 1) if own else (None, None)))
    table = arrays.take(f"{at}table", len(knots), k - 1 if own else None)
    d, r = len(transform), table.shape[1]
    claims.demand(transform.shape == (d, d) and d > 0, f"{at}transform", "square", transform.shape)
    n = d + r + (2 if is_new else 1)
    claims.demand(bool(own) or (k == n and (len(knots) > 1 or not r)), f"{at}kind", f"{n}", k)
    quantiles = claims.rising(arrays.take(f"{at}quantiles", 0 if own else None, low=-far, high=far), f"{at}quantiles")
    if len(quantiles):
        claims.demand(quantiles[0] < quantiles[-1], f"{at}quantiles", "more than one", quantiles[:3].tolist())
        slopes = rank_curve(quantiles).c
        claims.demand(np.isfinite(slopes).all(), f"{at}quantiles", "apart from each other", quantiles.tolist())
    return System(
        own,
        claims.number(value["low"], f"the lowest value of input {i}", -FARTHEST, FARTHEST),
        claims.number(value["width"], f"the width of input {i}", TINY, 2.0 * FARTHEST),
        quantiles,
        transform,
        knots,
        table,
        claims.number(value["observed"], f"the function at values of input {i}", -LARGEST, LARGEST),
        arrays.take(f"{at}missing", k),
        arrays.take(f"{at}unseen", k),
        kind,
        arrays.take(f"{at}cost", k, kind="i", low=0, high=1000),
        arrays.take(f"{at}offset", k),
        arrays.take(f"{at}gram", k, k),
        **_later(value, arrays, at, k, len(knots)) if is_new else _of_0_1(own, d, r, k),
    )


class _Later(TypedDict):
    family: Int[np.ndarray, " k"]
    cell: Int[np.ndarray, " g"]
    is_discrete: bool


def _later(value: Record, arrays: Arrays, at: str, k: int, g: int) -> _Later:
    family = arrays.take(f"{at}family", k, kind="i", low=min(Family), high=max(Family))
    cell = arrays.take(f"{at}cell", g, kind="i", low=-1, high=max(g, 1))
    return {"family": family, "cell": cell, "is_discrete": claims.flag(value["is_discrete"], "is_discrete")}


def _of_0_1(own: int, d: int, r: int, k: int) -> _Later:
    """Polynomials, Brownian motion, and no function of what no row has."""
    known = [Family.ANY, *[Family.SMOOTH] * (d - 1), *[Family.LEVELS if own else Family.BROWNIAN] * r]
    family = np.array([*known, Family.ANY][:k]).astype(int)
    return {"family": family, "cell": np.zeros(0, dtype=int), "is_discrete": False}


def _check_bounded(basis: Basis, means: Sequence[np.ndarray], roots: Sequence[np.ndarray]) -> None:
    """f is far from overflow at any row: each function at its largest, all terms of one sign."""
    largest = []
    for system in basis.systems:
        values = np.maximum(np.abs(system.missing), np.abs(system.unseen))
        # Legendre polynomials are within ±1
        inner = np.abs(system.transform).sum(axis=0)
        table = np.abs(system.table).max(axis=0, initial=0.0)
        beyond = [np.sqrt(MOST_BEYOND + 1.0)] if system.grows else []
        seen = np.append(1.0, table)
        if not system.n_levels:
            seen = np.concatenate([inner, table, [abs(system.observed)], beyond])
        largest.append(np.maximum(values, seen))
    columns = [np.ones(1)]
    with np.errstate(over="ignore"):
        for block in basis.blocks:
            columns.append(np.prod([largest[i][block.index[:, axis]] for axis, i in enumerate(block.term)], axis=0))
        phi = np.concatenate(columns)
        sizes = [float(phi @ np.abs(mean)) for mean in means]
        sizes += [float(np.max(phi @ np.abs(root), initial=0.0)) for root in roots]
    # no f on the scale of its targets' sds is so large; squares of it, and sums of many, are within double precision
    claims.demand(max(sizes) < 1e60, "what it can say", "far from overflow", max(sizes))
