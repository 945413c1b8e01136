import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_rgba
from matplotlib.patches import PathPatch, Polygon

import vertebra as vb
from vertebra import plot
from vertebra.inference import History
from vertebra.plot.marks import plain_text

HOSTILE = ["$x_1$", "<script>", "a_b^c", r"a\$b", "Größe θ", "two\nlines", "100 % $", "a long name " * 12]


@pytest.fixture(autouse=True)
def no_figure_is_left_open():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    data = vb.datasets.synthetic("f1", 300, seed=0)
    return vb.AdditiveRegressor(random_state=0).fit(data.x, data.y)


def table_of(inputs, mean, half=0.5):
    """What `model.effect` returns: columns may share a name, so they are put side by side and named afterwards."""
    mean = np.asarray(mean, dtype=float)
    columns = [*inputs.values(), mean, np.full(mean.shape, half / 2), mean - half, mean + half]
    table = pd.concat([pd.Series(column) for column in columns], axis=1)
    table.columns = [*inputs, "mean", "sd", "lower", "upper"]
    return table


def grid_of(*values, names=("a", "b", "c", "d"), half=0.5):
    grids = np.meshgrid(*[np.arange(len(v)) for v in values], indexing="ij")
    inputs = {name: [v[i] for i in g.ravel()] for name, v, g in zip(names, values, grids, strict=False)}
    return table_of(inputs, sum(g.ravel() for g in grids) - 2.0, half)


def effects_of(*rows):
    """Rows of (term, strength, probability)."""
    columns = ["term", "order", "strength", "sd", "lower", "upper", "sobol", "probability"]
    full = [(term, len(term), s, 0.1, 0.9 * s, 1.1 * s, 0.1, p) for term, s, p in rows]
    return pd.DataFrame(full, columns=columns)


def labels_of(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def texts_of(ax):
    return [text.get_text() for text in ax.texts]


def drawn(ax):
    """Lays everything out, so that warnings of the layout and of missing glyphs become errors."""
    ax.figure.draw_without_rendering()
    return ax


def mesh_of(ax):
    (mesh,) = [c for c in ax.collections if isinstance(c, QuadMesh)]
    return np.ma.getdata(mesh.get_array()).T, mesh


def hatched_cells(ax):
    """The centres of the hatched cells."""
    patches = [patch for patch in ax.patches if isinstance(patch, PathPatch) and patch.get_hatch()]
    corners = [corner for patch in patches for corner in patch.get_path().vertices.reshape(-1, 5, 2)]
    return {tuple(np.round(corner[:4].mean(axis=0), 9)) for corner in corners}


NUMBERS = np.linspace(0.0, 1.0, 5)
CURVE = table_of({"x0": NUMBERS}, np.sin(NUMBERS))


def test_a_curve_draws_the_mean_and_the_band_of_the_table():
    ax = drawn(plot.effect(CURVE))
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), CURVE[["x0", "mean"]])
    (band,) = ax.collections
    corners = {tuple(v) for v in band.get_paths()[0].vertices}
    assert {(x, y) for c in ("lower", "upper") for x, y in zip(CURVE["x0"], CURVE[c], strict=True)} <= corners
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_legend()) == ("x0", "effect", None)
    assert not ax.spines["top"].get_visible()


def test_a_simultaneous_band_is_drawn_around_the_other_and_named():
    ax = drawn(plot.effect(CURVE, simultaneous=table_of({"x0": NUMBERS}, np.sin(NUMBERS), 0.9), unit="kg"))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["simultaneous", "pointwise"]
    outer, inner = (c.get_paths()[0].vertices[:, 1] for c in ax.collections)
    assert outer.min() == pytest.approx(-0.9)
    assert inner.min() == pytest.approx(-0.5)
    assert ax.get_ylim()[0] < -0.9
    assert ax.get_ylabel() == "effect (kg)"


def test_a_simultaneous_band_of_other_rows_is_refused():
    with pytest.raises(ValueError, match="`simultaneous` must have the rows of `table`"):
        plot.curve(CURVE, simultaneous=CURVE.iloc[:3])


def test_bars_of_the_histogram_have_areas_in_proportion_to_the_shares_and_stay_below_the_band():
    marginal = pd.DataFrame({"lower": [0.0, 0.2, 0.6], "upper": [0.2, 0.6, 1.0], "share": [0.2, 0.2, 0.6]})
    ax = drawn(plot.effect(CURVE, marginal=marginal))
    area = np.array([bar.get_width() * bar.get_height() for bar in ax.patches])
    np.testing.assert_allclose(area / area.sum(), marginal["share"])
    tallest = max(bar.get_height() for bar in ax.patches)
    low, high = ax.get_ylim()
    assert tallest == pytest.approx(0.12)
    assert low + tallest * (high - low) < CURVE["lower"].min()


def test_a_histogram_without_width_is_refused():
    with pytest.raises(ValueError, match="`marginal` must have bars with `lower` below `upper`"):
        plot.curve(CURVE, marginal=pd.DataFrame({"lower": [0.0], "upper": [0.0], "share": [1.0]}))


def test_missing_values_stand_apart_at_the_right_with_their_name():
    table = table_of({"x0": np.append(NUMBERS, np.nan)}, [0.0, 0.1, 0.2, 0.3, 0.4, 3.0])
    ax = drawn(plot.effect(table))
    place = ax.get_xticks()[-1]
    assert labels_of(ax.xaxis)[-1] == "missing"
    assert 1.0 < place < ax.get_xlim()[1]
    assert [tuple(line.get_xydata()[0]) for line in ax.lines if len(line.get_xydata()) == 1] == [(place, 3.0)]
    (bar,) = [c.get_segments()[0] for c in ax.collections if isinstance(c, LineCollection)]
    np.testing.assert_allclose(bar, [[place, 2.5], [place, 3.5]])
    (curve,) = [line for line in ax.lines if len(line.get_xydata()) == 5]
    assert np.isfinite(curve.get_xydata()).all()


def test_an_input_called_mean_is_drawn_by_its_place():
    ax = drawn(plot.effect(table_of({"mean": NUMBERS}, np.cos(NUMBERS))))
    np.testing.assert_array_equal(ax.lines[-1].get_xdata(), NUMBERS)
    np.testing.assert_array_equal(ax.lines[-1].get_ydata(), np.cos(NUMBERS))
    table = grid_of(list(NUMBERS), list(NUMBERS), names=("upper", "sd"))
    axes = plot.effect(table)
    np.testing.assert_array_equal(mesh_of(axes[0])[0].ravel(), table.iloc[:, -4])
    assert axes[0].get_xlabel() == "upper"


def test_a_flat_effect_and_a_single_row_can_be_drawn():
    drawn(plot.effect(table_of({"x0": NUMBERS}, np.zeros(5), half=0.0)))
    drawn(plot.effect(table_of({"x0": [0.0]}, [0.0], half=0.0)))
    drawn(plot.effect(table_of({"x0": ["a"]}, [0.0], half=0.0)))
    drawn(plot.effect(table_of({"x0": [1.0], "x1": [0.0]}, [0.0], half=0.0))[0])


def test_levels_keep_the_order_of_the_table_from_the_top():
    marginal = pd.DataFrame({"level": ["c", "a"], "share": [0.75, 0.25]})
    table = table_of({"city": ["b", "a", "c"]}, [0.1, -1.0, 0.7])
    ax = drawn(plot.effect(table, marginal=marginal))
    assert labels_of(ax.yaxis) == ["b", "a", "c"]
    assert ax.yaxis_inverted()
    np.testing.assert_array_equal(ax.lines[-1].get_xydata(), [[0.1, 0], [-1.0, 1], [0.7, 2]])
    np.testing.assert_allclose([s[:, 0] for s in ax.collections[0].get_segments()], table[["lower", "upper"]])
    widths = [abs(bar.get_width()) for bar in ax.patches]
    np.testing.assert_allclose(widths, [0.0, 0.05, 0.15])


def few_values():
    """A number of four values, and missing ones, as `model.effect` has it."""
    x, mean = np.array([0.0, 1.0, 2.0, 10.0, np.nan]), np.array([-1.0, 0.0, 0.5, 1.0, 0.3])
    table = pd.DataFrame({"dose": x, "mean": mean, "sd": 0.1, "lower": mean - 0.2, "upper": mean + 0.2})
    table.attrs["discrete"] = ["dose"]
    return table


def test_a_discrete_number_has_a_point_and_a_bar_at_each_value_and_no_band():
    table = few_values()
    outer = table.assign(lower=table["lower"] - 0.1, upper=table["upper"] + 0.1)
    edges = np.array([0.0, 0.5, 1.5, 6.0, 10.0])
    marginal = pd.DataFrame({"lower": edges[:-1], "upper": edges[1:], "share": [0.1, 0.2, 0.3, 0.4]})
    ax = vb.plot.effect(table, simultaneous=outer, marginal=marginal)
    is_band = [isinstance(each, PolyCollection) for each in ax.collections]
    assert not any(is_band)
    bars = {tuple(line[:, 0]): tuple(line[:, 1]) for each in ax.collections for line in each.get_segments()}
    for x, low, high in zip(table["dose"][:4], table["lower"], table["upper"], strict=False):
        assert bars[x, x] == pytest.approx((low, high))
    marked = [line for line in ax.get_lines() if line.get_marker() == "o"]
    np.testing.assert_array_equal(marked[0].get_xdata(), [0.0, 1.0, 2.0, 10.0])
    # the data: a bar about each value, as high as its share
    middles = [bar.get_x() + 0.5 * bar.get_width() for bar in ax.patches]
    assert middles == pytest.approx([0.0, 1.0, 2.0, 10.0])
    assert [bar.get_height() / ax.patches[-1].get_height() for bar in ax.patches] == pytest.approx([0.25, 0.5, 0.75, 1])
    assert {label.get_text() for label in ax.get_xticklabels()} <= {"0", "1", "2", "10", "missing"}
    # without the note it is a number like others
    table.attrs = {}
    assert any(isinstance(each, PolyCollection) for each in vb.plot.effect(table).collections)


def test_a_discrete_number_of_two_has_equal_cells_with_its_values():
    grid = pd.MultiIndex.from_product([[0.0, 1.0, 50.0], [0.5, 1.5]], names=["dose", "b"]).to_frame(index=False)
    table = grid.assign(mean=np.arange(6.0) - 2.0, sd=0.1, lower=-0.1, upper=0.1)
    table.attrs["discrete"] = ["dose"]
    ax = vb.plot.surface(table)[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "50"]
    assert ax.get_xlim() == (-0.5, 2.5)
    assert ax.get_ylim() == (0.0, 2.0)
    axes = vb.plot.slices(
        pd.concat([table.assign(c=c) for c in (1.0, 1000000.0)])[["dose", "b", "c", "mean", "sd", "lower", "upper"]]
    )
    assert [label.get_text() for label in axes[0].get_xticklabels()] == ["0", "1", "50"]


def test_values_of_a_discrete_number_have_as_many_labels_as_there_is_room_for():
    grid = pd.MultiIndex.from_product([np.arange(24.0), [0.0, 1.0]], names=["hour", "b"]).to_frame(index=False)
    table = grid.assign(mean=1.0, sd=0.1, lower=0.5, upper=1.5)
    table.attrs["discrete"] = ["hour", "b"]
    ax = vb.plot.surface(table)[0]
    assert [label.get_text() for label in ax.get_xticklabels()] == [str(h) for h in range(0, 24, 2)]


def test_integers_and_booleans_are_levels_and_floats_are_numbers():
    assert labels_of(plot.effect(table_of({"month": [1, 2, 3]}, [0.1, 0.2, 0.3])).yaxis) == ["1", "2", "3"]
    assert labels_of(plot.effect(table_of({"on": [False, True]}, [0.1, 0.2])).yaxis) == ["False", "True"]
    assert plot.effect(CURVE).get_xlabel() == "x0"
    assert labels_of(plot.surface(grid_of([1.5, "other"], [0.0, 1.0]))[0].xaxis) == ["1.5", "other"]


def test_of_many_levels_the_extremes_are_shown_and_counted():
    mean = np.random.default_rng(0).permutation(57)
    ax = drawn(plot.effect(table_of({"code": [f"l{m}" for m in mean]}, mean)))
    assert labels_of(ax.yaxis) == [f"l{m}" for m in [*range(56, 46, -1), *range(9, -1, -1)]]
    assert ax.get_ylabel() == "code: 10 highest and 10 lowest of 57"
    assert labels_of(plot.effect(table_of({"code": list("abcdefghijklmnopqrst")}, range(20))).yaxis)[-1] == "t"


def test_a_surface_shows_mean_and_sd_on_scales_of_their_own():
    table = grid_of([0.0, 1.0, 2.0], [0.0, 10.0], half=0.2)
    axes = plot.effect(table)
    drawn(axes[0])
    mean, mesh = mesh_of(axes[0])
    np.testing.assert_array_equal(mean.ravel(), table["mean"])
    np.testing.assert_array_equal(mesh_of(axes[1])[0].ravel(), table["sd"])
    assert mesh.norm.vmin == -mesh.norm.vmax == -2.0
    assert mesh_of(axes[1])[1].norm.vmin == 0.0
    assert [ax.get_title(loc="left") for ax in axes] == ["mean", "standard deviation"]
    assert (axes[0].get_xlabel(), axes[0].get_ylabel()) == ("a", "b")


def test_rows_of_a_surface_may_come_in_any_order():
    table = grid_of([0.0, 1.0, 2.0], [0.0, 10.0])
    straight, shuffled = plot.surface(table), plot.surface(table.sample(frac=1.0, random_state=0))
    np.testing.assert_array_equal(mesh_of(straight[0])[0], mesh_of(shuffled[0])[0])
    with pytest.raises(ValueError, match="one row per combination of its inputs, 6, got 5"):
        plot.surface(table.iloc[:5])


@pytest.mark.parametrize("first", [[0.0, 1.0, 2.0], ["l0", "l1", "l2"]])
@pytest.mark.parametrize("second", [[0.0, 1.0], ["m0", "m1"]])
def test_cells_are_hatched_exactly_where_the_band_holds_zero(first, second):
    axes = plot.surface(grid_of(first, second, half=0.5))
    # The means are i + j - 2, the half width 1/2: the band holds 0 only where i + j = 2.
    assert hatched_cells(drawn(axes[0])) == {(1.0, 1.0), (2.0, 0.0)}
    assert not hatched_cells(axes[1])
    assert "hatched" in axes[0].get_title(loc="right")
    if isinstance(first[0], str):
        assert labels_of(axes[0].xaxis) == first


def test_without_hatching_nothing_is_said_about_it():
    axes = plot.surface(grid_of([0.0, 1.0], [0.5], half=0.1))
    assert not hatched_cells(axes[0])
    assert axes[0].get_title(loc="right") == ""


def test_signs_of_a_surface_can_be_told_without_colour():
    axes = plot.surface(grid_of(["l0", "l1"], ["m0", "m1", "m2"], half=0.1))
    assert texts_of(axes[0]) == ["−2.0", "−1.0", "+0.0", "−1.0", "+0.0", "+1.0"]
    axes = plot.surface(grid_of(list(np.arange(5.0)), list(np.arange(3.0)), half=0.1))
    (contours,) = [c for c in axes[0].collections if not isinstance(c, QuadMesh)]
    # Solid lines have no pattern of dashes.
    assert [pattern is None for _, pattern in contours.get_linestyle()] == [level > 0 for level in contours.levels]
    assert {level > 0 for level in contours.levels} == {True, False}


def test_one_axes_takes_the_mean_of_a_surface_alone():
    _, ax = plt.subplots(layout="constrained")
    assert plot.effect(grid_of([0.0, 1.0], [0.0, 1.0]), ax) is ax
    assert len(ax.figure.axes) == 2, "the axes and its colour bar"


def test_a_pair_with_an_input_of_few_values_is_a_line_with_a_band_for_each():
    table = grid_of(["no", "yes", "both"], list(np.linspace(0.0, 1.0, 9)), names=("open", "hour"))
    ax = drawn(plot.effect(table))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["open = no", "open = yes", "open = both"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("hour", "effect")
    for k, line in enumerate(ax.lines[1:]):
        own = table.iloc[9 * k : 9 * (k + 1)]
        np.testing.assert_array_equal(line.get_xydata(), own[["hour", "mean"]])
        band = {tuple(v) for v in ax.collections[k].get_paths()[0].vertices}
        assert {(x, y) for c in ("lower", "upper") for x, y in zip(own["hour"], own[c], strict=True)} <= band
    # told apart in grey too
    assert len({line.get_linestyle() for line in ax.lines[1:]}) == 3
    # two Axes ask for mean and sd
    assert len(mesh_of(plot.effect(table, plt.subplots(1, 2)[1])[0])) == 2


def test_a_discrete_number_of_few_values_has_lines_and_beside_levels_there_are_points():
    table = grid_of([0.0, 1.0], ["a", "b", "c"], names=("works", "city"))
    table.attrs["discrete"] = ["works"]
    ax = drawn(plot.effect(table))
    assert labels_of(ax.xaxis) == ["a", "b", "c"]
    assert [line.get_linestyle() for line in ax.lines[1:]] == ["None", "None"]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["works = 0", "works = 1"]
    table = grid_of([0.0, 1.0], list(np.arange(24.0)), names=("works", "hour"))
    table.attrs["discrete"] = ["works", "hour"]
    ax = drawn(plot.lines(table))
    np.testing.assert_array_equal(ax.lines[1].get_xdata(), np.arange(24.0))
    assert ax.lines[1].get_marker() == "o"
    with pytest.raises(ValueError, match="`table` must have an input of at most 6 values"):
        plot.lines(grid_of(list(NUMBERS), list(NUMBERS)))


def test_where_no_rows_are_near_lines_have_gaps():
    table = grid_of(["no", "yes"], [0.0, 0.5, 1.0], names=("open", "hour"))
    table.attrs["rows"] = {("no", 0.0): 0.0}
    assert np.isnan(plot.lines(table).lines[1].get_ydata()).tolist() == [True, False, False]
    assert np.isfinite(plot.lines(table, everywhere=True).lines[1].get_ydata()).all()


def test_dates_are_dates_on_every_axis():
    days = np.linspace(15000.0, 15700.0, 9)  # from January 2011 to December 2012
    one = table_of({"sold": np.append(days, np.nan)}, np.arange(10.0))
    two = grid_of(list(days), list(NUMBERS), names=("sold", "size"))
    three = grid_of(list(NUMBERS), list(NUMBERS), [15000.0, 15365.0], names=("size", "rooms", "sold"))
    by_city = grid_of(["a", "b"], list(days), names=("city", "sold"))
    for table in (one, two, three, by_city):
        table.attrs["dates"] = ["sold"]
    axes = [plot.effect(one), plot.effect(one.iloc[:9]), plot.effect(two)[0], plot.effect(by_city)]
    for ax in axes:
        assert any("2012" in text or "2011" in text for text in labels_of(drawn(ax).xaxis)), labels_of(ax.xaxis)
    assert [ax.get_title() for ax in plot.effect(three)] == ["sold = 2011-01-26", "sold = 2012-01-26"]
    few = table_of({"sold": [15000.0, 15365.0]}, [0.0, 1.0])
    few.attrs |= {"dates": ["sold"], "discrete": ["sold"]}
    assert labels_of(drawn(plot.effect(few)).xaxis)[-1] == "2012-01-26"


def test_slices_share_one_scale_and_show_each_value_of_the_third_input():
    table = grid_of([0.0, 1.0], ["u", "v"], [0.25, 0.5, 0.75])
    axes = plot.effect(table)
    drawn(axes[0])
    assert [ax.get_title() for ax in axes] == ["c = 0.25", "c = 0.5", "c = 0.75"]
    for k, ax in enumerate(axes):
        np.testing.assert_array_equal(mesh_of(ax)[0].ravel(), table["mean"].to_numpy()[k::3])
        assert mesh_of(ax)[1].norm.vmax == 2.0
        assert hatched_cells(ax) == {(i, j) for i in (0.0, 1.0) for j in (0.0, 1.0) if i + j + k == 2}
    assert len(axes[0].figure.axes) == 4, "one colour bar for all"


def test_at_most_eight_slices_are_drawn_evenly_spaced():
    axes = plot.slices(grid_of([0.0, 1.0], [0.0, 1.0], [f"l{i}" for i in range(15)]))
    assert [ax.get_title() for ax in axes] == [f"c = l{i}" for i in range(0, 15, 2)]
    _, given = plt.subplots(1, 2)
    assert plot.slices(grid_of([0.0, 1.0], [0.0, 1.0], ["p", "q", "r"]), given) is given
    assert [ax.get_title() for ax in given] == ["c = p", "c = r"]


def test_terms_of_more_than_three_inputs_are_refused():
    with pytest.raises(ValueError, match="only terms of up to three inputs can be drawn, got 4"):
        plot.effect(grid_of(*[[0.0, 1.0]] * 4))


@pytest.mark.parametrize("draw", [plot.effect, plot.curve, plot.levels, plot.surface, plot.slices])
def test_a_table_that_is_not_of_an_effect_is_refused(draw):
    with pytest.raises(ValueError, match=r"`table` must be what `model.effect` returns.*got columns \['mean', 'sd'"):
        draw(CURVE.iloc[:, 1:])


@pytest.mark.parametrize(("draw", "n"), [(plot.curve, 1), (plot.levels, 1), (plot.surface, 2)])
def test_a_table_of_another_number_of_inputs_is_refused(draw, n):
    with pytest.raises(ValueError, match=f"`table` must be of a term of {n} inputs?, got 3"):
        draw(grid_of([0.0, 1.0], [0.0, 1.0], [0.0, 1.0]))


def test_tables_without_their_columns_are_refused():
    bad = pd.DataFrame({"level": ["a"]})
    for argument, draw in {
        "marginal": lambda: plot.curve(CURVE, marginal=bad),
        "effects": lambda: plot.strengths(bad),
        "explanation": lambda: plot.waterfall(bad),
        "table": lambda: plot.calibration(bad),
    }.items():
        with pytest.raises(ValueError, match=rf"`{argument}` must have the columns .*, got \['level'\]"):
            draw()


EFFECTS = effects_of(
    (("a",), 3.0, 1.0), (("b", "c"), 1.0, 0.7), (("b",), 2.0, 0.998), (("a", "b", "d"), 0.5, 0.2), (("e",), 0.1, 0.001)
)


def test_strengths_stand_strongest_first_with_their_intervals_and_probabilities():
    ax = drawn(plot.strengths(EFFECTS, unit="kg"))
    assert labels_of(ax.yaxis) == ["a", "b", "b × c", "a × b × d", "e"]
    assert texts_of(ax) == [">0.99", ">0.99", "0.70", "0.20", "<0.01", "P(real)"]
    assert [line.get_xdata()[0] for line in ax.lines] == [3.0, 2.0, 1.0, 0.5, 0.1]
    np.testing.assert_allclose(ax.collections[0].get_segments()[0][:, 0], [2.7, 3.3])
    assert [line.get_marker() for line in ax.lines] == ["o", "o", "s", "^", "o"]
    assert [line.get_alpha() < 1 for line in ax.lines] == [False, False, False, True, True]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["main effect", "pair", "triple"]
    assert ax.get_xlabel() == "strength (kg)"


def test_strengths_left_out_are_counted():
    ax = drawn(plot.strengths(EFFECTS, most=2))
    assert labels_of(ax.yaxis) == ["a", "b", "… and 3 more"]
    assert ax.get_legend() is None
    with pytest.raises(ValueError, match="`most` must be at least 1, got 0"):
        plot.strengths(EFFECTS, most=0)


def test_a_model_without_terms_says_so():
    assert texts_of(plot.strengths(effects_of())) == ["no terms"]
    assert texts_of(plot.interactions(effects_of())) == ["no interactions"]


def test_interactions_are_lines_and_triangles_between_the_inputs_that_act():
    ax = drawn(plot.interactions(EFFECTS))
    assert sorted(texts_of(ax)) == ["a", "b", "c", "d", "e"]
    place = dict(zip(texts_of(ax), ax.collections[0].get_offsets(), strict=True))
    size = dict(zip(texts_of(ax), ax.collections[0].get_sizes(), strict=True))
    assert size["a"] > size["b"] > size["e"] > size["c"] == size["d"]
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_xydata(), [place["b"], place["c"]])
    (triangle,) = [patch for patch in ax.patches if isinstance(patch, Polygon)]
    assert {tuple(v) for v in triangle.get_xy()} == {tuple(place[name]) for name in "abd"}
    assert (line.get_linestyle(), triangle.get_linestyle()) == ("-", "--")


def test_stronger_pairs_have_wider_lines():
    ax = plot.interactions(effects_of((("a", "b"), 1.0, 1.0), (("b", "c"), 4.0, 1.0), (("c", "d"), 0.0, 1.0)))
    assert [line.get_linewidth() for line in ax.lines] == sorted(
        (line.get_linewidth() for line in ax.lines), reverse=True
    )
    assert "d" not in texts_of(ax), "a term of strength 0 does not act"


def test_main_effects_alone_have_no_interactions():
    assert texts_of(drawn(plot.interactions(effects_of((("a",), 1.0, 1.0), (("b",), 2.0, 1.0))))) == ["no interactions"]


def test_thirty_inputs_stand_on_the_circle_without_their_labels_touching():
    rows = [((f"input{i:02d}", f"input{(i + 1) % 30:02d}"), 1.0 + i, 0.9) for i in range(30)]
    ax = drawn(plot.interactions(effects_of(*rows), most=30))
    assert len(set(texts_of(ax))) == 30
    anchors = np.array([text.get_window_extent().get_points().mean(axis=0) for text in ax.texts])
    apart = np.linalg.norm(anchors[:, None] - anchors[None], axis=-1) + 1e9 * np.eye(30)
    # Along the ray a label is as wide as its letters are high.
    assert apart.min() > ax.texts[0].get_fontsize() * ax.figure.dpi / 72


def test_of_many_interactions_the_strongest_are_drawn_and_the_others_counted():
    mains = [((f"x{i}",), 2.0, 1.0) for i in range(20)]
    pairs = [((f"x{i % 20}", f"x{(3 * i + 1) % 20}"), 1.0 + i, 0.9) for i in range(50) if (3 * i + 1) % 20 != i % 20]
    ax = drawn(plot.interactions(effects_of(*mains, *pairs)))
    assert len(ax.lines) == 15
    assert f"and {len(pairs) - 15} weaker interactions" in texts_of(ax)
    shown = {name for term, _, _ in sorted(pairs, key=lambda row: -row[1])[:15] for name in term}
    assert shown == {text for text in texts_of(ax) if text.startswith("x")}
    assert len(drawn(plot.interactions(effects_of(*mains, *pairs), most=len(pairs))).lines) == len(pairs)
    with pytest.raises(ValueError, match="`most` must be at least 1, got 0"):
        plot.interactions(effects_of(*pairs), most=0)


def test_exact_zeros_of_the_norms_are_blank_and_small_ones_are_not():
    norms = np.array([[0.0, 1e-12, 2.0], [0.5, 0.0, 0.0]])
    ax = drawn(plot.sparsity(norms, names=["$x_1$", "b", "c"]))
    (mesh,) = ax.collections
    np.testing.assert_array_equal(np.ma.getmaskarray(mesh.get_array()), norms == 0)
    np.testing.assert_array_equal(np.ma.getdata(mesh.get_array())[norms > 0], norms[norms > 0])
    # The colour of the smallest is far from the white of the paper.
    assert np.linalg.norm(np.array(mesh.to_rgba(1e-12)) - to_rgba("white")) > 0.2
    assert labels_of(ax.xaxis) == [r"\$x_1\$", "b", "c"]
    assert ax.yaxis_inverted()
    drawn(plot.sparsity(np.zeros((2, 2))))


def test_norms_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"`norms` must have the shape \(sub-networks, inputs\).*got \(2, 3, 4\)"):
        plot.sparsity(np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="`names` must have one entry per input, 3, got 1"):
        plot.sparsity(np.ones((2, 3)), names=["a"])


def test_a_chain_is_drawn_with_its_inputs_layers_and_blocks():
    ax = drawn(plot.skeleton(vb.chain(3, 2), layers=vb.random_features([3, 1], r=100), names=["age", "$x$", "c"]))
    assert texts_of(ax) == [
        *("age", r"\$x\$", "c", "inputs"),
        *("h1", "layer 1\ntanh\nRB 100 + FB 3"),
        *("h2", "layer 2\ntanh\nRB 100 + FB 1"),
        *("h2", "output"),
    ]
    assert len(ax.lines) == 3 + 1 + 1


def test_every_edge_of_an_own_graph_is_drawn_and_sums_have_their_sign():
    skeleton = vb.Skeleton(
        ["a", "b", "unread"],
        [
            [vb.Node("h1", ["a", "b"], "relu"), vb.Node("h2", ["b"])],
            [vb.Node("g1", ["h1", "h2"]), vb.Node("g2", ["h2"])],
        ],
        [vb.Output("y1", ["g1", "g2"]), vb.Output("y2", ["g2"])],
    )
    ax = drawn(plot.skeleton(skeleton))
    # y1 adds two nodes: their lines meet in ⊕, and one more leads to y1.
    assert len(ax.lines) == len(list(skeleton.edges)) + 3 + 1
    assert texts_of(ax).count("⊕") == 1
    assert {"h1: relu", "h2: tanh", "g1", "y1", "y2", "outputs"} <= set(texts_of(ax))
    place = {text.get_text(): text.get_position() for text in ax.texts}
    starts = {tuple(line.get_xydata()[0]) for line in ax.lines}
    assert place["a"] in starts
    assert place["unread"] not in starts


def test_outputs_of_many_tasks_and_sub_networks_each_have_their_box():
    ax = drawn(plot.skeleton(vb.multitask(4, 3, depth=2)))
    assert len(ax.lines) == 4 + 3 + 3
    ax = drawn(plot.skeleton(vb.additive(5, clusters=[(0, 1), (2,), (3, 4)], depth=2)))
    assert len(ax.lines) == 5 + 3 + 3 + 1
    assert texts_of(ax).count("⊕") == 1


def test_many_inputs_of_the_same_nodes_are_folded():
    ax = drawn(plot.skeleton(vb.additive(100, clusters=[range(60), range(60, 98), [98, 99]], depth=1)))
    assert {"x0 … x59", "x60 … x97", "x98, x99"} <= set(texts_of(ax))
    assert len(ax.lines) == 3 + 3 + 1
    assert "x24" in texts_of(plot.skeleton(vb.chain(25, 1)))


def test_a_column_too_long_has_its_middle_in_one_box():
    ax = drawn(plot.skeleton(vb.additive(60, clusters=[[i] for i in range(60)], depth=1)))
    assert texts_of(ax).count("… 48 more …") == 2
    assert len(ax.lines) == 13 + 13 + 1
    drawn(plot.skeleton(vb.multitask(40, 40, depth=2)))


def test_layers_and_names_that_do_not_fit_the_skeleton_are_refused():
    with pytest.raises(ValueError, match="`layers` must have one entry per layer of the skeleton, 2, got 1"):
        plot.skeleton(vb.chain(3, 2), layers=vb.mean_field([1]))
    with pytest.raises(ValueError, match="`names` must have one entry per input, 3, got 2"):
        plot.skeleton(vb.chain(3, 2), names=["a", "b"])


def explanation_of(means):
    rows = [((), "", 10.0, 9.5, 10.5)]
    rows += [((f"x{i}",), f"x{i} = {i}", m, m - 0.1, m + 0.1) for i, m in enumerate(means)]
    return pd.DataFrame(rows, columns=["term", "value", "mean", "lower", "upper"])


def test_a_waterfall_falls_from_the_intercept_to_the_total_largest_first():
    ax = drawn(plot.waterfall(explanation_of([0.5, -2.0, 1.0]), unit="kg"))
    assert labels_of(ax.yaxis) == ["intercept", "x1 = 1", "x2 = 2", "x0 = 0", "total"]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [-2.0, 1.0, 0.5])
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    np.testing.assert_allclose(ends, [8.0, 9.0, 9.5])
    np.testing.assert_allclose([bar.get_x() for bar in ax.patches], [10.0, *ends[:-1]])
    np.testing.assert_allclose(ax.lines[-1].get_xdata(), [10.0, 9.5])
    assert [bool(bar.get_hatch()) for bar in ax.patches] == [True, False, False]
    whiskers = [segment[:, 0] for segment in ax.collections[0].get_segments()]
    np.testing.assert_allclose(whiskers, [[9.5, 10.5], [7.9, 8.1], [8.9, 9.1], [9.4, 9.6]])
    assert texts_of(ax) == ["10.00", "−2.00", "+1.00", "+0.50", "9.50"]


def test_terms_beyond_the_largest_are_added_up_without_a_whisker():
    means = [4.0, -3.0, 2.0, -1.0, 0.5]
    ax = drawn(plot.waterfall(explanation_of(means), most=2))
    assert labels_of(ax.yaxis) == ["intercept", "x0 = 0", "x1 = 1", "3 other terms", "total"]
    assert ax.patches[-1].get_width() == pytest.approx(1.5)
    assert len(ax.collections[0].get_segments()) == 3
    assert ax.lines[-1].get_xdata()[-1] == pytest.approx(10.0 + sum(means))


def test_an_explanation_may_hold_the_intercept_alone_but_needs_it():
    assert labels_of(drawn(plot.waterfall(explanation_of([]))).yaxis) == ["intercept", "total"]
    with pytest.raises(ValueError, match=r"`explanation` must have the intercept, the term \(\), as its first row"):
        plot.waterfall(explanation_of([1.0]).iloc[1:])


def test_calibration_draws_the_points_and_the_diagonal():
    table = pd.DataFrame(
        {"expected": [0.2, 0.8], "observed": [0.25, 0.7], "lower": [0.1, 0.6], "upper": [0.3, 0.9], "n": 9}
    )
    ax = drawn(plot.calibration(table))
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(ax.lines[1].get_xydata(), table[["expected", "observed"]])
    np.testing.assert_array_equal([s[:, 1] for s in ax.collections[0].get_segments()], table[["lower", "upper"]])


def test_limits_of_training_are_those_of_the_late_steps():
    step = np.arange(1, 41)
    elbo = -1.0 - 1e6 * (step == 1)
    score = -1.5 + 0.01 * (step == 30)
    ax = drawn(plot.training(History(step, elbo, score)))
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), elbo)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), score)
    assert ax.lines[2].get_xdata() == [30], "the best step"
    assert ax.get_ylim()[0] > -2.0


def test_training_draws_a_score_that_is_the_elbo_once():
    elbo = np.array([-2.0, np.nan, -1.0, -1.1])
    ax = drawn(plot.training(History(np.arange(4), elbo, elbo)))
    assert [line.get_label() for line in ax.lines] == ["ELBO", "best"]
    assert ax.get_legend() is None
    drawn(plot.training(History(np.array([5]), np.array([-1.0]), np.array([-1.0]))))
    with pytest.raises(ValueError, match="`history` must have one value per step, and a step, got 0, 0 and 0"):
        plot.training(History(*[np.zeros(0)] * 3))


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_drawn_as_they_are_written_and_long_ones_fit(name):
    shown = plain_text(name, 36)
    assert not matplotlib.cbook.is_math_text(shown)
    drawn(plot.effect(table_of({name: NUMBERS}, NUMBERS), unit=name))
    drawn(plot.effect(table_of({name: [name, "b"]}, [0.0, 1.0])))
    drawn(plot.effect(grid_of([name, "b"], [name, "c"], names=(name, name + "2"))))
    drawn(plot.surface(grid_of([name, "b"], [name, "c"], names=(name, name + "2")))[0])
    drawn(plot.effect(grid_of([0.0, 1.0], [0.0, 1.0], [name], names=(name, name + "2", name + "3")))[0])
    effects = effects_of(((name,), 1.0, 1.0), ((name, "b", "c"), 1.0, 1.0))
    assert labels_of(drawn(plot.strengths(effects)).yaxis)[0] == shown
    drawn(plot.interactions(effects))
    drawn(plot.skeleton(vb.Skeleton([name], [[vb.Node("h" + name, [name])]]), names=[name]))
    drawn(plot.sparsity(np.ones((1, 8)), names=[name] * 8))
    rows = [((), "", 0.0, 0.0, 0.0), ((name,), f"{name} = {name}", 1.0, 0.9, 1.1)]
    drawn(plot.waterfall(pd.DataFrame(rows, columns=["term", "value", "mean", "lower", "upper"])))


def test_dollars_are_escaped_and_the_middle_of_long_names_is_left_out():
    assert plain_text("$x_1$") == r"\$x_1\$"
    assert plain_text("two\nlines") == "two lines"
    assert plain_text("abcdefghij", 7) == "abcd…ij"


def test_the_axes_given_are_used_and_returned():
    one = {
        "effect": lambda ax: plot.effect(CURVE, ax),
        "curve": lambda ax: plot.curve(CURVE, ax),
        "levels": lambda ax: plot.levels(CURVE, ax),
        "strengths": lambda ax: plot.strengths(EFFECTS, ax),
        "interactions": lambda ax: plot.interactions(EFFECTS, ax),
        "no interactions": lambda ax: plot.interactions(effects_of(), ax),
        "sparsity": lambda ax: plot.sparsity(np.ones((2, 2)), ax),
        "skeleton": lambda ax: plot.skeleton(vb.chain(2, 1), ax),
        "waterfall": lambda ax: plot.waterfall(explanation_of([1.0]), ax),
        "calibration": lambda ax: plot.calibration(
            pd.DataFrame({"expected": [0.5], "observed": [0.5], "lower": [0.4], "upper": [0.6], "n": [10]}), ax
        ),
        "training": lambda ax: plot.training(History(np.arange(3), np.arange(3.0), np.arange(3.0)), ax),
    }
    for name, draw in one.items():
        _, ax = plt.subplots()
        n_figures = len(plt.get_fignums())
        assert draw(ax) is ax, name
        assert len(plt.get_fignums()) == n_figures, name
        assert ax.has_data() or ax.texts, name
    _, axes = plt.subplots(1, 2)
    assert plot.surface(grid_of([0.0, 1.0], [0.0, 1.0]), axes) is axes
    with pytest.raises(ValueError, match="`axes` must be two Axes, or one for the mean alone, got 3"):
        plot.surface(grid_of([0.0, 1.0], [0.0, 1.0]), plt.subplots(1, 3)[1])


def test_settings_of_matplotlib_stay_as_they_were():
    before = dict(plt.rcParams)
    plot.surface(grid_of(["l0", "l1"], [0.0, 1.0]))
    plot.waterfall(explanation_of([1.0, -1.0]))
    assert dict(plt.rcParams) == before


def test_what_a_fitted_model_returns_can_be_drawn(model):
    effects = model.effects()
    for draw in (plot.strengths, plot.interactions):
        drawn(draw(effects))
    for term in effects["term"]:
        table = model.effect(term)
        axes = plot.effect(table, simultaneous=model.effect(term, simultaneous=True) if len(term) == 1 else None)
        drawn(np.ravel(np.asarray(axes, dtype=object))[0])


def test_a_model_is_drawn_by_the_name_of_a_term_and_in_one_figure(rng):
    x = pd.DataFrame({"hr": rng.uniform(0, 24, 300), "open": rng.choice(["yes", "no"], 300), "z": rng.random(300)})
    y = np.sin(x["hr"] / 4.0) * (x["open"] == "yes") + x["z"] + rng.normal(0, 0.1, 300)
    model = vb.AdditiveRegressor(clusters=[("hr", "open"), ("z",)]).fit(x, y)
    by_name, by_table = vb.plot.effect(model, "hr"), vb.plot.effect(model.effect("hr"))
    np.testing.assert_array_equal(by_name.lines[0].get_ydata(), by_table.lines[0].get_ydata())
    ax = plt.subplots()[1]
    assert vb.plot.effect(model, ax, term="open") is ax
    pair = vb.plot.effect(model, ("hr", "open"))
    assert [text.get_text() for text in pair.get_legend().get_texts()] == ["open = no", "open = yes"]
    for printed in ("hr × open", "open x hr"):
        assert vb.plot.effect(model, printed).get_xlabel() == pair.get_xlabel()
    axes = vb.plot.summary(model, most=3)
    assert [each.get_xlabel() for each in axes[:3]] == ["strength", *model.effects(order=1)["term"].map("".join)[:2]]
    assert sum(each.get_legend() is not None for each in axes[1:3]) <= 1  # once a figure
    given = plt.subplots(2, 2)[1]
    assert vb.plot.summary(model, given, most=3).tolist() == given.ravel().tolist()
    with pytest.raises(ValueError, match="`axes` must be at least 4 Axes, got 2"):
        vb.plot.summary(model, plt.subplots(1, 2)[1], most=3)
    with pytest.raises(ValueError, match="or a model with a term, got None"):
        vb.plot.effect(model)
    with pytest.raises(ValueError, match="`term` goes with a model"):
        vb.plot.effect(model.effect("hr"), term="hr")
    with pytest.raises(ValueError, match="`most` must be at least 1"):
        vb.plot.summary(model, most=0)
    plt.close("all")
