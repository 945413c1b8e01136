"""Golden numbers: what small fits say through public names, recorded before a change and compared after it.

    python experiments/golden.py record golden.npz              # three minutes of a core, twice that the first time
    python experiments/golden.py compare golden.npz             # fits again; status 1 where anything differs
    python experiments/golden.py compare golden.npz --only f1 counts

Numbers may differ by 1e-10 of themselves, shapes, types and words not at all. The models' files are recorded too, and a
comparison loads them: they must say the same. A record is of one machine and its libraries, since others add in another
order. Nothing here knows a private name, so that it outlives any move inside the package.
"""

import argparse
import base64
import contextlib
import dataclasses
import html
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

# One thread: which sums BLAS adds in which order must not depend on what else the machine does.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import jax.random as jr
import matplotlib as mpl
import numpy as np
import onnxruntime
import pandas as pd

mpl.use("Agg")

import matplotlib.pyplot as plt

import vertebra as vb

ROOT = pathlib.Path(__file__).parents[1]
TOLERANCE = 1e-10
# Differences are beside the value, but at least beside this share of the array's largest: a sum that cancels has no
# digits of its own.
LEAST_SIZE = 1e-3
N_NEW = 30  # rows that are predicted
CLASSES = np.array(["low", "middle", "high"])
# How a report packs arrays into text.
PACKED = {"mean": "<f8", "root": "<i2", "special": "<f4", "table": "<f4"}
NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "scikit-learn", "pandas", "onnxruntime")


# --- anything as named arrays -----------------------------------------------------------------------------------------


def arrays(name: str, thing: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Numbers and texts of tables, records, lists and mappings, each under its own name."""
    if isinstance(thing, pd.DataFrame):
        yield f"{name}/columns", np.array([label(column) for column in thing.columns], dtype=str)
        parts = {label(column): thing.iloc[:, place] for place, column in enumerate(thing.columns)}
    elif dataclasses.is_dataclass(thing):
        parts = dataclasses.asdict(thing)
    elif hasattr(thing, "_asdict"):
        parts = thing._asdict()
    elif isinstance(thing, Mapping):
        parts = {label(key): value for key, value in thing.items()}
    elif isinstance(thing, list | tuple) and not all(isinstance(value, str) or np.isscalar(value) for value in thing):
        parts = {str(place): value for place, value in enumerate(thing)}
    else:
        array = np.asarray("nothing" if thing is None else thing)
        if array.dtype.kind not in "biufU":
            array = np.array([str(value) for value in array.ravel()], dtype=str).reshape(array.shape)
        yield name, array
        return
    for key, value in parts.items():
        yield from arrays(f"{name}/{key}", value)


def label(key: Any) -> str:
    return " & ".join(map(str, key)) or "()" if isinstance(key, tuple) else str(key)


def page_of(path: pathlib.Path) -> dict[str, Any]:
    """A report's visible words, its numbers, and those of the data in it; without what it was written with."""
    text = path.read_text(encoding="utf-8")
    body, data = re.search(r'(?s)<body>(.*?)<script type="application/json" id="data">(.*?)</script>', text).groups()
    body = re.sub(r'(?s)<section id="again".*?</section>', "", body)
    return {"text": numbered(visible(body)), "data": of_json(json.loads(data), PACKED)}


def visible(markup: str) -> str:
    markup = re.sub(r"(?s)<(style|script)\b.*?</\1>", " ", markup)
    return " ".join(html.unescape(re.sub(r"(?s)<[^>]*>", " ", markup)).split())


def numbered(text: str) -> dict[str, Any]:
    """Words and numbers apart, since only numbers may differ a little."""
    numbers = [float(found.replace("−", "-").replace(",", "")) for found in NUMBER.findall(text)]
    return {"words": NUMBER.sub("#", text), "numbers": np.array(numbers)}


def of_json(document: Any, packed: Mapping[str, str] = {}) -> dict[str, Any]:
    """The numbers of a document in one array, its texts in another; packed arrays as what they hold."""
    numbers: list[Any] = []
    texts: list[str] = []

    def walk(name: str, value: Any) -> None:
        if isinstance(value, dict):
            for key in sorted(value):
                texts.append(key)
                walk(key, value[key])
        elif isinstance(value, list):
            for each in value:
                walk(name, each)
        elif isinstance(value, str) and name in packed:
            numbers.extend(np.frombuffer(base64.b64decode(value), packed[name]).tolist())
        elif isinstance(value, str):
            texts.append(value)
        else:
            numbers.append(np.nan if value is None else float(value))

    walk("", document)
    return {"texts": texts, "numbers": np.array(numbers)}


def drawn(axes: Any) -> dict[str, Any]:
    """What stands in a figure: its words, and the data of its lines and areas."""
    figure = (axes if hasattr(axes, "figure") else np.ravel(axes)[0]).figure
    texts, points = [], []
    for ax in figure.axes:
        texts += [ax.get_title(), ax.get_xlabel(), ax.get_ylabel(), *(text.get_text() for text in ax.texts)]
        texts += [tick.get_text() for tick in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        points += [np.ravel(line.get_xydata()) for line in ax.lines]
        points += [np.ravel(part.vertices) for each in ax.collections for part in each.get_paths()]
        points += [np.ravel(patch.get_xy()) for patch in ax.patches if hasattr(patch, "get_xy")]
        points += [np.array([*ax.get_xlim(), *ax.get_ylim()])]
    plt.close(figure)
    return {"texts": texts, "points": np.concatenate(points).astype(float)}


# --- what a model says ------------------------------------------------------------------------------------------------


def predictions(model: Any, rows: Any, y: Any) -> dict[str, Any]:
    if hasattr(model, "classes_"):
        ways = ("predict", "predict_proba", "predict_f", "decision_function")
        return {way: getattr(model, way)(rows) for way in ways} | {"log_prob": model.log_prob(rows, y)}
    return {
        "predict": model.predict(rows),
        "with_std": model.predict(rows, return_std=True),
        "predict_f": model.predict_f(rows),
        "uncertainty": model.predict_uncertainty(rows),
        "interval": model.predict_interval(rows),
        "interval_80": model.predict_interval(rows, level=0.8),
        "quantiles": model.predict_quantiles(rows, [0.1, 0.5, 0.9]),
        "sample_y": model.sample_y(rows, 5, random_state=7),
        "log_prob": model.log_prob(rows, y),
    }


def explanations(model: Any, rows: Any, k: int) -> dict[str, Any]:
    """Of one output: terms with their strengths, some as functions, and predictions taken apart."""
    found, first = model.effects(output=k), rows[:1]
    shown = [next((t for t in found["term"] if len(t) in orders), None) for orders in ((1,), (2, 3))]
    said = {
        "effects": found,
        "effects_80": model.effects(level=0.8, output=k),
        "effects_text": found.to_string(),
        "effects_baseline": model.effects(baseline=first, output=k),
        "interactions": model.interactions(output=k),
        "eval_terms": model.eval_terms(rows, output=k),
        "eval_terms_baseline": model.eval_terms(rows, baseline=first, output=k),
        "explain": model.explain(first, output=k),
        "explain_baseline": model.explain(rows[1:2], baseline=first, output=k),
    }
    for term in filter(None, shown):
        said[f"effect {label(term)}"] = {
            "pointwise": model.effect(term, output=k),
            "simultaneous": model.effect(term, simultaneous=True, output=k),
            "baseline": model.effect(term, baseline=first, output=k, points=7),
        }
    return said


def served(model: Any, rows: Any, path: pathlib.Path) -> Any:
    model.to_tables(path)
    return vb.serving.load(path).predict_f(rows, n_threads=1)


def by_onnx(model: Any, rows: Any, path: pathlib.Path) -> Any:
    model.to_onnx(path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    frame = rows if isinstance(rows, pd.DataFrame) else pd.DataFrame(rows).rename(columns=lambda i: f"x{i}")
    feed = {put.name: fed(frame, put.name, is_text="string" in put.type)[:, None] for put in session.get_inputs()}
    return dict(zip((out.name for out in session.get_outputs()), session.run(None, feed), strict=True))


def fed(frame: pd.DataFrame, name: str, *, is_text: bool) -> np.ndarray:
    """A column as the graph reads it: text, a number, or a part of a date."""
    if name not in frame:
        source, part = re.fullmatch(r"(.*) \((\w+)\)", name).groups()
        when = frame[source]
        if part == "time":
            return ((when - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(float)
        parts = {"month": when.dt.month - 1, "weekday": when.dt.day_of_week, "hour": when.dt.hour}
        return parts[part].to_numpy(float)
    if is_text:
        return np.array(["" if pd.isna(value) else str(value) for value in frame[name]], dtype=object)
    return frame[name].to_numpy(float, na_value=np.nan)


def or_refusal(work: Callable[..., Any], *given: Any) -> Any:
    try:
        return work(*given)
    except ValueError as error:
        return {"refused": str(error)}


class Notes:
    """What the cases say, by name, and the files of their models; `before` holds a record to compare with."""

    def __init__(self, folder: pathlib.Path, before: Mapping[str, np.ndarray]):
        self.folder, self.before = folder, before
        self.said: dict[str, np.ndarray] = {}
        self.files: dict[str, np.ndarray] = {}

    def add(self, name: str, thing: Any) -> None:
        for place, array in arrays(name, thing):
            if place in self.said:
                raise ValueError(f"{place} is there twice.")
            self.said[place] = array

    def model(self, name: str, model: Any, rows: Any, y: Any) -> None:
        """All that an estimator says of itself and of new rows; also from its file, and from a file recorded before."""
        self.add(f"{name}/says", predictions(model, rows, y))
        self.add(f"{name}/diagnostics", {"text": str(model.diagnostics_), "parts": model.diagnostics_})
        self.add(f"{name}/evaluation", {"text": str(model.evaluation_), "parts": model.evaluation_})
        self.add(f"{name}/evaluated", model.evaluate(rows, y))
        self.add(f"{name}/marginal", model.marginal(0))
        self.add(f"{name}/targets", model.target_names_)
        self.add(f"{name}/notebook", visible(model._repr_mimebundle_()["text/html"]))  # as notebooks call it
        path = self.folder / f"{name}.vertebra"
        model.save(path)
        self.files[name] = np.frombuffer(path.read_bytes(), np.uint8)
        self.add(f"{name}/loaded", predictions(vb.load(path), rows, y))
        if (place := f"files/{name}") in self.before:
            path.write_bytes(self.before[place].tobytes())
            self.add(f"{name}/file before", predictions(vb.load(path), rows, y))
        if not hasattr(model, "effects"):
            return
        self.add(f"{name}/clusters", str(model.clusters_))
        n_classes = len(getattr(model, "classes_", ()))
        for k in range(n_classes if n_classes > 2 else len(model.target_names_)):
            self.add(f"{name}/output {k}", explanations(model, rows, k))
        model.report(self.folder / "report.html")
        self.add(f"{name}/report", page_of(self.folder / "report.html"))
        self.add(f"{name}/tables", or_refusal(served, model, rows, self.folder / "served.npz"))
        self.add(f"{name}/onnx", or_refusal(by_onnx, model, rows, self.folder / "model.onnx"))


# --- tables -----------------------------------------------------------------------------------------------------------


class Table(NamedTuple):
    x: Any
    y: np.ndarray


def synthetic(name: str, n: int, seed: int) -> Table:
    data = vb.datasets.synthetic(name, n=n, seed=seed)
    return Table(data.x, data.y)


def flats(n: int, seed: int) -> Table:
    """Numbers, one with a far tail, whole numbers, levels, ordered ones, booleans and dates; gaps in most of them."""
    rng = np.random.default_rng(seed)
    size, district = rng.gamma(4.0, 20.0, n), rng.choice(["north", "south", "harbour", "hill"], n)
    hours = rng.integers(0, 2 * 365 * 24, n)
    x = pd.DataFrame(
        {
            "size": size,
            "income": np.exp(2.0 * rng.standard_normal(n)),
            "rooms": pd.array(rng.integers(1, 6, n), dtype="Int64"),
            "district": district,
            "grade": pd.Categorical(rng.choice(["poor", "fair", "good"], n), ["poor", "fair", "good"], ordered=True),
            "lift": rng.random(n) < 0.4,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(hours, unit="h"),
            "code": rng.integers(0, 90, n).astype(str),  # more levels than have a coefficient each
            "flat": 7.0,
        }
    )
    step = pd.Series(district).map({"north": 0.0, "south": 1.0, "harbour": 3.0, "hill": -2.0}).to_numpy()
    y = 0.05 * size + step * (1.0 + x["lift"].to_numpy()) + np.log(x["income"].to_numpy())
    y = y + np.sin(hours / 2000.0) + 0.5 * rng.standard_normal(n)
    for name in ("size", "income", "rooms", "district", "grade", "sold"):
        x.loc[rng.random(n) < 0.08, name] = None
    return Table(x, y)


def new_flats() -> Table:
    """Rows with a district that was never seen, and gaps where there were none."""
    x, y = flats(N_NEW, 1)
    x.loc[0, "district"], x.loc[1, "code"] = "moon", "never"
    x["lift"] = x["lift"].astype(object)
    x.loc[2, "lift"] = None
    return Table(x[x.columns[::-1]].assign(spare=1.0), y)


def gaps(n: int, seed: int) -> Table:
    """What is missing acts: rows without it are noisier."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 3)), columns=list("abc"))
    y = 3.0 * x["a"] + np.sin(3.0 * x["b"]) + 0.2 * rng.standard_normal(n)
    x.loc[rng.random(n) < 0.3, "a"] = np.nan
    return Table(x, y.to_numpy())


def together(n: int, seed: int) -> Table:
    """a + 6abcd: a product of four inputs, which no function of three of them explains."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 4)), columns=list("abcd"))
    return Table(x, (x["a"] + 6.0 * x.prod(axis=1) + 0.1 * rng.standard_normal(n)).to_numpy())


def small(n: int, seed: int) -> Table:
    """The columns of the tables that tests/files were fitted to; rows with levels and gaps that these did not have."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"a": rng.random(n), "b": rng.choice(["u", "v", "w", "z"], n), "c": rng.random(n) < 0.5})
    x.loc[rng.random(n) < 0.1, "a"] = np.nan
    x["d"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.uniform(0.0, 25.0, n).round(3), unit="D")
    return Table(x, rng.standard_normal(n).round(2))


# --- cases ------------------------------------------------------------------------------------------------------------


def f1(notes: Notes) -> None:
    rows, y = synthetic("f1", N_NEW, 1)
    model = vb.AdditiveRegressor(random_state=0).fit(*synthetic("f1", 500, 0))
    notes.model("f1", model, rows, y)
    model.report(notes.folder / "report.html", rows, y)
    notes.add("f1/report on new rows", page_of(notes.folder / "report.html"))
    effects, outer = model.effects(), model.effect("x3", simultaneous=True)
    figures = {
        "curve": vb.plot.effect(model.effect("x3"), simultaneous=outer, marginal=model.marginal("x3")),
        "surface": vb.plot.effect(model.effect(("x0", "x1"))),
        "strengths": vb.plot.strengths(effects),
        "interactions": vb.plot.interactions(effects),
        "waterfall": vb.plot.waterfall(model.explain(rows[:1])),
        "calibration": vb.plot.calibration(model.evaluation_.curve()),
    }
    notes.add("f1/figures", {name: drawn(axes) for name, axes in figures.items()})


def f3(notes: Notes) -> None:
    model = vb.AdditiveRegressor(random_state=0).fit(*synthetic("f3", 500, 0))
    notes.model("f3", model, *synthetic("f3", N_NEW, 1))


def messy(notes: Notes) -> None:
    x, y = flats(400, 0)
    weight = np.random.default_rng(2).integers(0, 4, len(y))
    notes.model("messy", vb.AdditiveRegressor(random_state=0).fit(x, pd.Series(y, name="rent"), weight), *new_flats())
    settings = dict(weights="importance", feature_types={"rooms": "category"}, likelihood="gaussian")
    model = vb.AdditiveRegressor(random_state=0, **settings).fit(x, y, weight + 0.5)
    notes.model("messy importance", model, *new_flats())


def two_classes(notes: Notes) -> None:
    (x, y), (rows, new) = flats(400, 0), new_flats()
    notes.model("two classes", vb.AdditiveClassifier(random_state=0).fit(x, y > 5.0), rows, new > 5.0)


def three_classes(notes: Notes) -> None:
    def classes(y):
        return CLASSES[np.digitize(y, [12.0, 16.0])]

    (x, y), (rows, new) = synthetic("f1", 400, 0), synthetic("f1", N_NEW, 1)
    model = vb.AdditiveClassifier(random_state=0).fit(x, classes(y))
    notes.model("three classes", model, rows, classes(new))


def counts(notes: Notes) -> None:
    def draw(n, seed):
        x, y = synthetic("f1", n, seed)
        return x, np.random.default_rng(seed).poisson(np.exp(0.15 * y - 1.0)).astype(float)

    notes.model(
        "counts", vb.AdditiveRegressor(likelihood="poisson", random_state=0).fit(*draw(400, 0)), *draw(N_NEW, 1)
    )


def group_lasso(notes: Notes) -> None:
    model = vb.AdditiveRegressor(structure="group_lasso", n_subnetworks=4, random_state=0)
    notes.model("group lasso", model.fit(*synthetic("f1", 300, 0)), *synthetic("f1", N_NEW, 1))


def schemes(notes: Notes) -> None:
    """Networks on clusters found, taken apart; and, more shortly, every scheme on clusters given."""
    train, new = synthetic("f1", 300, 0), synthetic("f1", N_NEW, 1)
    for scheme in ("deep_kernel_learning", "mean_field"):
        notes.model(scheme, vb.AdditiveRegressor(scheme, n_steps=200, random_state=0).fit(*train), *new)
    given = dict(clusters=[("x0", "x1"), ("x3",)], n_steps=50, random_state=0)
    for scheme in ("mc_dropout", "random_features", "deep_random_features", "inducing_points"):
        model = vb.AdditiveRegressor(scheme, **given).fit(*train)
        notes.add(f"{scheme}/says", predictions(model, *new))
        notes.add(f"{scheme}/effects", model.effects())
    model = vb.AdditiveRegressor("mean_field", early_stopping=True, likelihood="student_t", **given).fit(*train)
    notes.add("mean_field/stopped early", predictions(model, *new))
    classifier = vb.AdditiveClassifier("mean_field", **given).fit(train.x, train.y > 14.0)
    notes.add("mean_field/classes", predictions(classifier, new.x, new.y > 14.0))


def skeletons(notes: Notes) -> None:
    (x, y), (rows, new) = flats(300, 0), new_flats()
    steps = dict(n_steps=150, random_state=0)
    notes.model("ensemble", vb.SkeletonRegressor(widths=(8,), **steps).fit(x, y), rows, new)
    x, y = synthetic("f1", 300, 0)
    rows, new = synthetic("f1", N_NEW, 1)
    chain = vb.SkeletonRegressor(vb.chain(10, 2), "deep_kernel_learning", widths=(6,), conformal=True, **steps)
    notes.model("chain", chain.fit(x, y), rows, new)
    notes.model("skeleton classes", vb.SkeletonClassifier(**steps).fit(x, y > 14.0), rows, new > 14.0)


def remainder(notes: Notes) -> None:
    """The networks have no setting that makes them fewer or smaller: half a minute."""
    model = vb.AdditiveRegressor(random_state=0).fit(*together(500, 0))
    if max(model.effects()["order"]) < 4:
        raise RuntimeError("No remainder was added: the case is not what it is to be.")
    notes.model("remainder", model, *together(N_NEW, 1))


def stream(notes: Notes) -> None:
    """Eight row groups in four Parquet files, with weights; terms, classes, and a network."""
    (notes.folder / "rows").mkdir()
    for part in range(4):
        x, y = flats(300, part)
        table = x.assign(rent=y, dear=y > 5.0, weight=1 + np.arange(300) % 3)
        table.to_parquet(notes.folder / "rows" / f"{part}.parquet", row_group_size=150)
    rows, y = new_flats()
    rows["lift"] = rows["lift"].astype("boolean")
    rows.to_parquet(notes.folder / "new.parquet")
    inputs = [name for name in rows if name != "spare"]

    def table(*more):
        return vb.stream.Parquet(notes.folder / "rows", columns=[*inputs, *more])

    model = vb.AdditiveRegressor(random_state=0, conformal=True).fit(table("rent", "weight"), "rent", "weight")
    notes.model("stream", model, rows, y)
    for name, write in (("predict", vb.stream.predict), ("eval_terms", vb.stream.eval_terms)):
        write(model, notes.folder / "new.parquet", notes.folder / "out.parquet")
        notes.add(f"stream/{name}", pd.read_parquet(notes.folder / "out.parquet"))
    classifier = vb.AdditiveClassifier(random_state=0).fit(table("dear"), "dear")
    notes.add("stream/classes", {"says": predictions(classifier, rows, y > 5.0), "effects": classifier.effects()})
    network = vb.SkeletonRegressor(scheme="deep_kernel_learning", widths=(6,), n_steps=50, random_state=0)
    notes.add("stream/network", predictions(network.fit(table("rent"), "rent"), rows, y))


def noises(notes: Notes) -> None:
    (x, y), (rows, new) = synthetic("smooth", 400, 0), synthetic("smooth", N_NEW, 1)
    rng = np.random.default_rng(3)
    settings = dict(random_state=0)
    heavy = vb.AdditiveRegressor(likelihood="student_t", **settings).fit(x, y + rng.standard_t(2.0, len(y)))
    notes.model("heavy tails", heavy, rows, new)
    uneven = vb.AdditiveRegressor(likelihood="heteroscedastic", **settings)
    notes.model("uneven noise", uneven.fit(x, y + 3.0 * x[:, 0] * rng.standard_normal(len(y))), rows, new)
    found = vb.AdditiveRegressor(**settings).fit(*gaps(400, 0))
    notes.add("noise at gaps/likelihood", found.likelihood_)
    notes.model("noise at gaps", found, *gaps(N_NEW, 1))
    both, said = (
        pd.DataFrame({"sum": one, "less": 5.0 - 0.5 * one + each[:, 5]}) for one, each in ((y, x), (new, rows))
    )
    notes.model("two targets", vb.AdditiveRegressor(**settings).fit(x, both), rows, said)
    notes.model("conformal", vb.AdditiveRegressor(conformal=True, **settings).fit(x, y), rows, new)


def networks(notes: Notes) -> None:
    """The research interface: every scheme, built, fitted, sampled and taken apart; every likelihood."""
    data = vb.datasets.synthetic("f1", n=200, seed=0)
    x, y = (data.x[:, :5] - 0.5) * 12**0.5, (data.y - data.y.mean()) / data.y.std()
    rows, key = x[:20], jr.key(2)
    skeleton = vb.additive(5, clusters=[(0, 1), (2,), (3, 4)], depth=2)
    layers = {
        "mc_dropout": vb.mc_dropout([4, 1]),
        "mean_field": vb.mean_field([4, 1]),
        "random_features": vb.random_features([4, 1], r=20, kernel=vb.RBF()),
        "deep_random_features": vb.deep_random_features([4, 1], r=20),
        "deep_kernel_learning": vb.deep_kernel_learning([4, 1], r=10),
        "inducing_points": vb.inducing_points([2, 1], r=10, kernel=vb.Matern()),
        "select_inputs": vb.select_inputs(vb.mean_field([4, 1])),
    }
    for name, scheme in layers.items():
        network = vb.build(skeleton, scheme, key=jr.key(0), x=x)
        fitted = vb.fit(network, vb.Gaussian(), x, y, key=jr.key(1), n_steps=100)
        notes.add(
            f"networks/{name}",
            {
                "built": network.weights(),
                "weights": fitted.network.weights(),
                "score": fitted.score,
                "history": fitted.history,
                "evidence": fitted.evidence,
                "noise": fitted.likelihood.scale,
                "moments": vb.moments(fitted.network, rows, key=key, n_draws=10),
                "sample": vb.sample(fitted.network, rows, key=key, n_draws=10),
                "elbo": vb.elbo(fitted.network, fitted.likelihood, x, y, key=key, n_draws=2),
                "kl": fitted.network.kl(key=key),
            },
        )
        if name in ("mean_field", "deep_kernel_learning"):
            notes.add(f"networks/{name}/taken apart", taken_apart(fitted.network, rows, x))
    notes.add("networks/figures", {"training": drawn(vb.plot.training(fitted.history))})
    notes.add("networks/figures/skeleton", drawn(vb.plot.skeleton(skeleton, layers=layers["mean_field"])))

    several = [vb.build(vb.chain(5, 2), vb.deep_ensemble([4, 1]), key=jr.key(i)) for i in range(4)]
    fitted = vb.fit(several, vb.Gaussian(), x, y, key=jr.key(1), n_steps=100, folds=2, weight=np.arange(200) % 3)
    said = {"scores": fitted.scores, "unseen": fitted.unseen, "moments": vb.moments(fitted.networks, rows, key=key)}
    notes.add("networks/ensemble", said)
    tasks = vb.build(vb.multitask(5, 2), vb.mean_field([4, 1]), key=jr.key(0))
    fitted = vb.fit(tasks, vb.Gaussian(), x, np.stack([y, -y], axis=1), key=jr.key(1), n_steps=50, validation=0.2)
    notes.add("networks/tasks", {"score": fitted.score, "moments": vb.moments(fitted.network, rows, key=key)})

    targets = {"Bernoulli": y > 0.0, "Categorical": np.digitize(y, [-0.5, 0.5]), "Poisson": np.round(np.exp(y))}
    for kind in (vb.HeteroscedasticGaussian, vb.StudentT, vb.Bernoulli, vb.Poisson, vb.Categorical):
        likelihood = kind(3) if kind is vb.Categorical else kind()
        network = vb.build(skeleton, vb.random_features([2, likelihood.n_latent(1)], r=10), key=jr.key(0))
        fitted = vb.fit(network, likelihood, x, targets.get(kind.__name__, y), key=jr.key(1), n_steps=50)
        f, likelihood = vb.sample(fitted.network, rows, key=key, n_draws=10), fitted.likelihood
        said = {"score": fitted.score, "f": f, "mean": likelihood.mean(f), "variance": likelihood.variance(f)}
        said |= {"quantiles": likelihood.quantiles(f, [0.1, 0.9]), "sample": likelihood.sample(f, jr.key(3))}
        notes.add(f"networks/{kind.__name__}", said)


def taken_apart(network: Any, rows: np.ndarray, x: np.ndarray) -> dict[str, Any]:
    effects = vb.decompose(network, x, key=jr.key(4), n_draws=50)
    some = vb.decompose(network, x, key=jr.key(4), baseline=x[0], terms=[(0, 1)], points=5, n_draws=20)
    said: dict[str, Any] = {"sobol": vb.sobol(effects), "baseline": some}
    for term, effect in effects.items():
        said[f"effect {label(term)}"] = {
            "points": [axis.points for axis in effect.axes],
            "mean": effect.mean,
            "sd": effect.sd,
            "strength": [effect.strength, *effect.interval()],
            "band": effect.band(simultaneous=True),
            "notebook": numbered(effect._repr_html_()),
        }
    return said | {"local": vb.attribute(network, rows, x, key=jr.key(5), n_draws=20)}


def priors(notes: Notes) -> None:
    """Functions before data, kernels and the small pieces that networks are made of."""
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((8, 3)), rng.standard_normal((5, 3))
    skeleton = vb.additive(3, clusters=[(0, 1), (2,)], depth=2, activation="erf")
    texts = {"additive": skeleton, "chain": vb.chain(3, 2), "multitask": vb.multitask(3, 2)}
    notes.add("priors/skeletons", {name: [str(each), each.to_json()] for name, each in texts.items()})
    for name, layers in (
        ("mean_field", vb.mean_field([6, 1])),
        ("random_features", vb.random_features([6, 1], r=16, activation="erf")),
        ("inducing_points", vb.deep_kernel_learning([6, 1], r=8)),
    ):
        network = vb.build(skeleton, layers, key=jr.key(0), x=x)
        draw = vb.draw_prior(network, key=jr.key(1))
        said = {"sample": vb.sample_prior(network, x, key=jr.key(2), n_draws=7), "weights": draw.weights()}
        notes.add(f"priors/{name}", said | {"mean": draw.mean(jnp.asarray(x.T, jnp.float32))})
        notes.add(f"priors/{name}/dual", vb.dual_kernel(skeleton, layers, x, z))
    kernels = {
        "rbf": vb.RBF(0.7),
        "matern": vb.Matern(1.5),
        "linear": vb.Linear(),
        "periodic": vb.Periodic(),
        "polynomial": vb.Polynomial(3),
        "dual": vb.Dual("relu", bias=0.5),
        "sum and product": vb.RBF() + vb.Linear() * vb.Matern(0.5),
    }
    columns = jnp.asarray(z, jnp.float32), jnp.asarray(x.T, jnp.float32)
    notes.add("priors/kernels", {name: kernel.init(3).columns(*columns) for name, kernel in kernels.items()})
    blocks = {
        "relu": vb.RandomFeatureBlock(16, "relu", bias=True),
        "matern": vb.RandomFeatureBlock(16, kernel=vb.Matern(), orthogonal=True),
    }
    for name, block in blocks.items():
        notes.add(f"priors/features/{name}", vb.empirical_kernel(block.init(3, rng=np.random.default_rng(1)), x, z))
    duals = {name: vb.activations.dual(name)(*jnp.array([1.0, 0.4, 2.0])) for name in ("relu", "erf", "tanh", "step")}
    notes.add("priors/activations", duals | {"hermite": vb.activations.hermite(3)(columns[0])})
    for name in ("f1", "f2", "f3", "f4"):
        notes.add(f"priors/strengths/{name}", vb.datasets.FUNCTIONS[name].strengths())


def command_line(notes: Notes) -> None:
    """A fit and its predictions by the console script, as pyproject.toml names it."""
    x, y = flats(300, 0)
    x.assign(rent=y).to_csv(notes.folder / "flats.csv", index=False)
    new_flats().x.to_csv(notes.folder / "new.csv", index=False)
    fit = run(notes.folder, "fit", "flats.csv", "--target", "rent", "--out", "flats", "--drop", "code", "--json")
    notes.add("command line/fit", of_json(json.loads(fit)))
    notes.add("command line/effects", pd.read_csv(notes.folder / "flats" / "effects.csv"))
    notes.add("command line/report", page_of(notes.folder / "flats" / "report.html"))
    run(notes.folder, "predict", "flats", "new.csv", "--terms", "--quantiles", "0.1,0.9", "--out", "said.csv")
    notes.add("command line/predict", pd.read_csv(notes.folder / "said.csv"))
    notes.add("command line/term", numbered(run(notes.folder, "effects", "flats", "--term", "district")))


def run(folder: pathlib.Path, *words: str) -> str:
    module, name = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["vertebra"].split(":")
    command = [sys.executable, "-c", f"from {module} import {name}; {name}()", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"vertebra {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def written_by_0_1(notes: Notes) -> None:
    """Every file under tests/files, which older versions wrote."""
    for path in sorted((ROOT / "tests" / "files").glob("*/*.vertebra")):
        rows, y = together(N_NEW, 1) if path.stem == "hybrid" else small(N_NEW, 1)
        model, name = vb.load(path), f"written by {path.parent.name}/{path.stem}"
        if path.stem == "two_targets":
            y = np.stack([y, y + 1.0], axis=1)
        if path.stem == "counts":
            y = np.round(np.abs(y))
        if hasattr(model, "classes_"):
            y = model.classes_[np.arange(len(rows)) % len(model.classes_)]
        notes.add(f"{name}/says", predictions(model, rows, y))
        notes.add(f"{name}/diagnostics", str(model.diagnostics_))
        notes.add(f"{name}/evaluation", model.evaluation_)
        if hasattr(model, "effects"):
            notes.add(f"{name}/explains", explanations(model, rows, 0))
    for path in sorted((ROOT / "tests" / "files").glob("*/*.npz")):
        says = vb.serving.load(path).predict_f(small(N_NEW, 1).x, n_threads=1)
        notes.add(f"written by {path.parent.name}/{path.stem}/tables", says)


CASES: dict[str, Callable[[Notes], None]] = {
    "f1": f1,
    "f3": f3,
    "messy": messy,
    "two_classes": two_classes,
    "three_classes": three_classes,
    "counts": counts,
    "group_lasso": group_lasso,
    "schemes": schemes,
    "skeletons": skeletons,
    "remainder": remainder,
    "stream": stream,
    "noises": noises,
    "networks": networks,
    "priors": priors,
    "command_line": command_line,
    "written_by_0_1": written_by_0_1,
}


# --- record and compare -----------------------------------------------------------------------------------------------


def said_by(name: str, before: Mapping[str, np.ndarray]) -> Notes:
    """The notes of one case, made in a folder that is gone afterwards."""
    start, cpu = time.perf_counter(), time.process_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        notes = Notes(pathlib.Path(folder), before)
        CASES[name](notes)
    jax.clear_caches()  # what is compiled would fill gigabytes by the end
    took = f"{time.perf_counter() - start:.1f} s, {time.process_time() - cpu:.1f} of them at work"
    print(f"{name}: {len(notes.said)} arrays in {took}", file=sys.stderr, flush=True)
    return notes


def about() -> str:
    """What else the numbers depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES)
    return f"Python {platform.python_version()} on {platform.machine()}, {cores} cores, {versions}"


class Difference(NamedTuple):
    """`fault` where it is no matter of digits."""

    absolute: float
    relative: float
    fault: str = ""


def difference(one: np.ndarray, other: np.ndarray) -> Difference:
    """Of two arrays of one name, the worst over all entries."""
    if one.dtype.kind != other.dtype.kind or (one.dtype.kind != "U" and one.dtype != other.dtype):
        return Difference(np.nan, np.nan, f"was {one.dtype}, is {other.dtype}")
    if one.shape != other.shape:
        return Difference(np.nan, np.nan, f"had the shape {one.shape}, has {other.shape}")
    if one.dtype.kind == "U":
        return Difference(0.0, 0.0, "" if np.array_equal(one, other) else changed(one, other))
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return Difference(np.nan, np.nan, "is not finite in other places")
    if not finite.any():
        return Difference(0.0, 0.0)
    a, b = a[finite], b[finite]
    away, size = np.abs(a - b), np.maximum(np.abs(a), np.abs(b))
    beside = np.maximum(np.maximum(size, LEAST_SIZE * size.max()), np.finfo(float).tiny)
    return Difference(float(away.max()), float((away / beside).max()))


def changed(one: np.ndarray, other: np.ndarray) -> str:
    """The first words that differ, and some after them."""
    before, after = (" ".join(np.ravel(each)).split() for each in (one, other))
    pairs = itertools.zip_longest(before, after)
    first = next((place for place, (word, now) in enumerate(pairs) if word != now), 0)
    return f"said {' '.join(before[first : first + 8])!r}, says {' '.join(after[first : first + 8])!r}"


def compare(before: Mapping[str, np.ndarray], names: list[str]) -> int:
    """Fits again, and prints what has become of every array; the status to end with."""
    if str(before["about"]) != about():
        print(f"Recorded with {before['about']};\nhere are      {about()}: digits may differ for that alone.")
    worst, worst_place, faults, n_arrays, n_equal, same_files = Difference(0.0, 0.0), "", [], 0, 0, []
    for case in names:
        try:
            notes = said_by(case, before)
        except Exception as error:
            traceback.print_exc()
            faults.append((case, f"ended with {type(error).__name__}: {error}"))
            continue
        known = {
            place.removeprefix(f"{case}: "): array for place, array in before.items() if place.startswith(f"{case}: ")
        }
        faults += [(f"{case}: {place}", "is no longer said") for place in known if place not in notes.said]
        for place, array in notes.said.items():
            # what a file recorded before says now is held to what it said then
            wanted = known.get(place.replace("/file before/", "/loaded/"))
            if wanted is None:
                faults.append((f"{case}: {place}", "was not said before"))
                continue
            found = difference(wanted, array)
            n_arrays, n_equal = n_arrays + 1, n_equal + (found == Difference(0.0, 0.0))
            print(f"{found.absolute:9.2e} {found.relative:9.2e}  {case}: {place}  {found.fault}".rstrip(), flush=True)
            if found.fault or not found.relative <= TOLERANCE:
                faults.append((f"{case}: {place}", found.fault or f"differs by {found.relative:.2e} of itself"))
            if found.relative > worst.relative:
                worst, worst_place = found, f", {case}: {place}"
        same_files += [np.array_equal(before.get(f"files/{name}"), file) for name, file in notes.files.items()]
    for place, fault in faults:
        print(f"FAULT  {place}  {fault}")
    print(f"{n_arrays} arrays, {n_equal} of them equal; {sum(same_files)} of {len(same_files)} files the same bytes.")
    print(f"Worst: {worst.absolute:.2e}, {worst.relative:.2e} of itself{worst_place}.")
    print(f"{len(faults)} fault(s)." if faults else "No fault.")
    return 1 if faults else 0


def record(path: pathlib.Path, names: list[str]) -> None:
    held: dict[str, np.ndarray] = {"about": np.array(about())}
    for case in names:
        notes = said_by(case, {})
        held |= {f"{case}: {place}": array for place, array in notes.said.items()}
        held |= {f"files/{name}": file for name, file in notes.files.items()}
    with path.open("wb") as file:
        np.savez_compressed(file, **held)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mode", choices=["record", "compare"])
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE")
    given = parser.parse_args()
    path = given.file.resolve()
    if given.mode == "record":
        record(path, given.only)
        return 0
    with np.load(path) as before:
        return compare(dict(before), given.only)


if __name__ == "__main__":
    sys.exit(main())
