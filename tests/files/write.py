"""Writes small models of every kind, and what they say of a few rows, to a folder named by the version.

    python tests/files/write.py tests/files/0.1

What an older version wrote must load in every later one, and say the same: `tests/test_archive.py` holds it. A folder
is written once, by the version that it is named by, and never again.
"""

import json
import pathlib
import sys

import numpy as np
import pandas as pd

import vertebra as vb

N_ROWS = 12


def table(n: int = 120, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """A number with gaps, a category, a boolean and a date."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"a": rng.random(n), "b": rng.choice(["u", "v", "w"], n), "c": rng.random(n) < 0.5})
    x.loc[rng.random(n) < 0.1, "a"] = np.nan
    x["d"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.uniform(0.0, 25.0, n).round(3), unit="D")
    step = x["b"].map({"u": 0.0, "v": 1.0, "w": -1.0}) * (1.0 + x["c"])
    return x, (np.sin(6.0 * x["a"].fillna(0.0)) + step + 0.2 * rng.standard_normal(n)).to_numpy()


def together(n: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """cos 0.9π(a + b + c + d): next to nothing of it is a function of three of them."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.uniform(-1.0, 1.0, (n, 4)), columns=list("abcd"))
    return x, (x["a"] + 1.5 * np.cos(0.9 * np.pi * x.sum(axis=1)) + 0.1 * rng.standard_normal(n)).to_numpy()


def models() -> dict:
    x, y = table()
    three = np.array(["high", "low", "middle"])[np.digitize(y, np.quantile(y, [0.3, 0.6]))]
    own = {"clusters": [("a",), ("b", "c")], "random_state": 0}
    steps = {"n_steps": 25, "random_state": 0}
    fitted = {
        "terms": vb.AdditiveRegressor(**own, conformal=True).fit(x, y),
        "two_targets": vb.AdditiveRegressor(**own).fit(x, np.stack([y, 2.0 - y], axis=1)),
        "heavy_tails": vb.AdditiveRegressor(**own, likelihood="student_t").fit(x, y),
        "uneven_noise": vb.AdditiveRegressor(**own, likelihood="heteroscedastic").fit(x, y),
        "counts": vb.AdditiveRegressor(**own, likelihood="poisson").fit(x, np.round(np.exp(0.5 * y))),
        "two_classes": vb.AdditiveClassifier(**own).fit(x, y > 0.3),
        "three_classes": vb.AdditiveClassifier(**own).fit(x, three),
        "network": vb.AdditiveRegressor("mean_field", **own, n_steps=25).fit(x, y),
        "skeleton": vb.SkeletonRegressor(vb.chain(6, 2), "deep_kernel_learning", widths=(4,), **steps).fit(x, y),
        "ensemble": vb.SkeletonRegressor(widths=(2,), **steps).fit(x, y),
    }
    # few small networks: the file says how many there are, and how wide
    from vertebra import fitting  # a module of 0.1, which wrote these files

    before = fitting.SCHEMES["deep_ensemble"], fitting.FEWEST_STEPS, fitting.MOST_STEPS
    fitting.SCHEMES["deep_ensemble"] = before[0] | {"widths": (12, 12), "n_restarts": 4, "folds": 2}
    fitting.FEWEST_STEPS = fitting.MOST_STEPS = 2500
    try:
        fitted["hybrid"] = vb.AdditiveRegressor(random_state=0).fit(*together(1000, 0))
    finally:
        fitting.SCHEMES["deep_ensemble"], fitting.FEWEST_STEPS, fitting.MOST_STEPS = before
    return fitted


def said(model, x: pd.DataFrame) -> dict[str, list]:
    """What a model says of rows."""
    if hasattr(model, "classes_"):
        return {"predict_proba": model.predict_proba(x).tolist(), "predict": model.predict(x).tolist()}
    mean, sd = model.predict(x, return_std=True)
    return {"mean": mean.tolist(), "sd": sd.tolist(), "interval": model.predict_interval(x, 0.8).tolist()}


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir()
    answers = {}
    for name, model in models().items():
        rows = (together if name == "hybrid" else table)(N_ROWS, 1)[0]
        model.save(folder / f"{name}.vertebra")
        answers[name] = said(model, rows)
        if name in ("terms", "two_targets", "three_classes"):
            model.to_tables(folder / f"{name}.npz")
            answers[f"{name} served"] = {"f": vb.serving.load(folder / f"{name}.npz").predict_f(rows).tolist()}
        print(name, type(model._surface).__name__, (folder / f"{name}.vertebra").stat().st_size, flush=True)
    (folder / "answers.json").write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
