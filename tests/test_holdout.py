"""Rows held out, and the model that is kept."""

import numpy as np
import pandas as pd
import pytest

import vertebra as vb
from vertebra.cli.holdout import fit_and_evaluate, split
from vertebra.cli.roles import About, Target
from vertebra.cli.terminal import console
from vertebra.machine.control import Control, Ended, Share


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
    model = fit_and_evaluate(console(quiet=True), x, target, About(), dict(random_state=0), share=0.0)
    assert model.target_names_ == ["rent", "heating"]
    for name in model.target_names_:
        assert f"95 % prediction intervals of {name} cover" in str(model.diagnostics_)


@pytest.mark.filterwarnings("ignore:AdditiveRegressor. the time budget")
def test_the_first_model_is_kept_where_the_second_was_cut_short_and_predicts_worse(monkeypatch, capsys):
    data = vb.datasets.synthetic("f1", n=400)
    x = pd.DataFrame(data.x, columns=[f"x{i}" for i in range(10)])
    target = Target(["y"], data.y, False, "numbers", "", 0)

    def over_in_the_second(self):
        if isinstance(self.time_budget, Share) and self.time_budget < self.time_budget.whole:
            self.ended = Ended.BUDGET
        return self.ended is not None

    monkeypatch.setattr(Control, "enough", over_in_the_second)
    model = fit_and_evaluate(console(), x, target, About(), dict(random_state=0), share=0.2, budget=1000.0)
    assert "The 1000 s were spent: the first model is kept, of 320 rows and not of all 400." in capsys.readouterr().out
    assert ("x0", "x1") in model.clusters_  # which the second had no time to look for
    assert (model.evaluation_.n, model.evaluation_.method, model.time_budget) == (80, "held_out", 1000.0)
    assert model.model_.profile.n_rows == 320
