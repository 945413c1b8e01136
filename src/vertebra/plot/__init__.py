"""Figures of what a model knows: each draws a table or a record on an `ax`, and returns it.

Nothing is estimated here: every number drawn was in what was given.

>>> data = vb.datasets.synthetic("f1", n=100)
>>> model = vb.AdditiveRegressor(clusters=[("x0", "x1"), ("x3",)]).fit(data.x, data.y)
>>> ax = vb.plot.strengths(model.effects())
>>> ax.get_xlabel()
'strength'
"""

from vertebra.plot.effects import curve, effect, levels
from vertebra.plot.explanation import waterfall
from vertebra.plot.fit import calibration, training
from vertebra.plot.lines import lines
from vertebra.plot.maps import slices, surface
from vertebra.plot.marks import AMBER, BLUE, GREY, ORANGE, SKY
from vertebra.plot.structure import skeleton, sparsity
from vertebra.plot.summary import summary
from vertebra.plot.terms import interactions, strengths

__all__ = [
    "AMBER",
    "BLUE",
    "GREY",
    "ORANGE",
    "SKY",
    "calibration",
    "curve",
    "effect",
    "interactions",
    "levels",
    "lines",
    "skeleton",
    "slices",
    "sparsity",
    "strengths",
    "summary",
    "surface",
    "training",
    "waterfall",
]
