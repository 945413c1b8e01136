"""Embedded data for the demonstration, and a figure of what was found in them."""

import io
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.utils import Bunch

from vertebra import datasets, plot
from vertebra.cli.roles import Target
from vertebra.estimators.explanations import Explanations


def example(name: str) -> tuple[pd.DataFrame, Target, str, Callable[[Sequence[str]], float] | None]:
    """Inputs, target, what they are, and the exact strength of a term where it is known."""
    if name == "f1":
        rows = datasets.synthetic("f1", 3000, seed=0)
        x = pd.DataFrame(rows.x, columns=pd.Index([f"x{i}" for i in range(rows.x.shape[1])]))
        strengths = datasets.f1.strengths()
        words = "f(x) = 10 sin(π x0 x1) + 20 (x2 − ½)² + 10 x3 + 5 x4: 3000 rows of 10 inputs, noise of sd 1."
        y = Target(["y"], rows.y, False, "numbers", "", 0)
        return x, y, words, lambda term: strengths.get(tuple(int(each[1:]) for each in term), 0.0)
    is_diabetes = name == "diabetes"
    loaded = load_diabetes(as_frame=True, scaled=False) if is_diabetes else load_breast_cancer(as_frame=True)
    bunch = cast(Bunch, loaded)
    x = bunch.data
    if is_diabetes:
        words = (
            f"What goes with the progress of diabetes a year later? {len(x)} patients, {x.shape[1]} measurements (age, "
            "sex, body mass index bmi, blood pressure bp, and six of blood serum, s1 to s6)."
        )
        return x, Target(["progress"], bunch.target.to_numpy(float), False, "numbers", "", 0), words, None
    words = f"Breast cancer, malignant or benign: {len(x)} tumours, {x.shape[1]} measurements."
    labels = np.array([str(each) for each in bunch.target_names])[bunch.target]
    return x, Target(["diagnosis"], labels, True, "two values", "", 0), words, None


def figure_of(model: Explanations) -> bytes:
    """Main effects, the strongest interaction and all strengths, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plot.summary(model, most=7)[0].figure
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=130)
    plt.close(figure)
    return picture.getvalue()
