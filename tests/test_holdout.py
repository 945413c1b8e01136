"""Rows held out, and the model that is kept."""

import numpy as np
import pandas as pd

from vertebra.cli.holdout import fit_and_evaluate, split
from vertebra.cli.roles import Target
from vertebra.cli.terminal import console


def test_rows_are_held_out_class_by_class_and_every_class_is_fitted():
    labels = np.array(["often"] * 80 + ["seldom"] * 20 + ["once"])
    target = Target(["y"], labels, True, "text", "", 0)
    train, test = split(target, 0.2, seed=0)
    assert sorted([*train, *test]) == list(range(101))
    assert pd.Series(labels[test]).value_counts().to_dict() == {"often": 16, "seldom": 4}
    assert set(labels[train]) == {"often", "seldom", "once"}
    np.testing.assert_array_equal(test, split(target, 0.2, seed=0)[1])
    assert not np.array_equal(test, split(target, 0.2, seed=1)[1])


def test_the_words_about_a_fit_call_targets_by_their_names(rng):
    x = pd.DataFrame(rng.random((80, 2)), columns=["a", "b"])
    values = x.to_numpy() + rng.normal(0.0, 0.1, (80, 2))
    target = Target(["rent", "heating"], values, False, "several targets", "", 0)
    model = fit_and_evaluate(console(quiet=True), x, target, None, dict(random_state=0), share=0.0)
    assert model.target_names_ == ["rent", "heating"]
    for name in model.target_names_:
        assert f"95 % prediction intervals of {name} cover" in str(model.diagnostics_)
