"""Draws the picture of the README: what goes with the progress of diabetes. `python docs/hooks/question.py`."""

import pathlib

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

import vertebra as vb

PICTURE = pathlib.Path(__file__).parents[1] / "images/diabetes.png"


def main() -> None:
    data = load_diabetes(as_frame=True, scaled=False)
    names = {"s5": "log triglycerides", "s3": "HDL", "bp": "blood pressure", "bmi": "body mass index"}
    x, y = data.data.rename(columns=names), data.target.rename("progress")
    model = vb.AdditiveRegressor(random_state=0).fit(x, y)
    figure, axes = plt.subplots(1, 3, figsize=(12.5, 3.6), layout="constrained")
    vb.plot.strengths(model.effects(), axes[0])
    for name, axis in zip(("log triglycerides", "body mass index"), axes[1:], strict=True):
        band = model.effect(name, simultaneous=True)
        vb.plot.effect(model.effect(name), axis, simultaneous=band, marginal=model.marginal(name))
    axes[2].set_ylabel("")
    for axis in axes[:2]:  # one legend a figure
        if axis.get_legend() is not None:
            axis.get_legend().remove()
    figure.savefig(PICTURE, dpi=110)


if __name__ == "__main__":
    main()
