import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vertebra as vb
from vertebra import Node, Output, Skeleton


@st.composite
def skeletons(draw, activations=("identity", "tanh", "relu", "sin")):
    """Any layered graph of up to three layers: every node read, one or several outputs, plain or summed."""
    sizes = [draw(st.integers(1, 4)) for _ in range(draw(st.integers(2, 4)))]
    inputs = tuple(f"x{i}" for i in range(sizes[0]))
    below, layers = inputs, []
    for level, size in enumerate(sizes[1:], start=1):
        parents = [draw(st.sets(st.sampled_from(below), min_size=1)) for _ in range(size)]
        if level > 1:
            for name in below:  # whoever is not read yet is read by some node
                if not any(name in read for read in parents):
                    parents[draw(st.integers(0, size - 1))].add(name)
        layer = tuple(
            Node(f"n{level}_{i}", tuple(sorted(read)), draw(st.sampled_from(activations)))
            for i, read in enumerate(parents)
        )
        layers.append(layer)
        below = tuple(node.name for node in layer)
    outputs = draw(st.sampled_from(["each", "sum", "both"]))
    if outputs == "sum":
        return Skeleton(inputs, tuple(layers), (Output("y", below),))
    if outputs == "both":
        return Skeleton(inputs, tuple(layers), (Output("y", below), Output("first", below[:1])))
    return Skeleton(inputs, tuple(layers))


@given(skeletons())
def test_text_and_json_give_the_skeleton_back(skeleton):
    assert Skeleton.from_text(str(skeleton)) == skeleton
    assert Skeleton.from_json(skeleton.to_json()) == skeleton
    json.loads(skeleton.to_json())


@given(st.text(min_size=1), st.text(min_size=1))
def test_text_form_takes_any_name(first, second):
    names = (first, second) if first != second else (first,)
    skeleton = Skeleton(names, ((Node('a node (1) = x; y + "z"', names),),))
    # A name with a line break is quoted with its escape, so it cannot break the line.
    assert Skeleton.from_text(str(skeleton)) == skeleton


def test_chain_is_figure_1a():
    skeleton = vb.chain(4, 2)
    assert skeleton.sizes == (4, 1, 1)
    assert skeleton.parents == (((0, 1, 2, 3),), ((0,),))
    assert skeleton.depth == 2
    assert list(skeleton.edges)[-1] == ("h1", "h2")


def test_additive_is_figure_1h():
    skeleton = vb.additive(4, 2, 2)
    assert skeleton.sizes == (4, 2, 2)
    assert skeleton.parents == (((0, 1, 2, 3), (0, 1, 2, 3)), ((0,), (1,)))
    assert skeleton.output_parents == ((0, 1),)
    assert skeleton.is_additive
    assert skeleton.adds_runs


def test_multitask_is_figure_1g():
    skeleton = vb.multitask(4, 3)
    assert skeleton.sizes == (4, 1, 3)
    assert skeleton.parents[1] == ((0,), (0,), (0,))
    assert skeleton.output_parents == ((0,), (1,), (2,))
    assert not skeleton.is_additive


def test_clusters_are_the_inputs_each_top_node_depends_on():
    skeleton = vb.additive(5, clusters=[(0, 1), (3,), (1, 2, 4)], depth=3)
    assert skeleton.clusters == ((0, 1), (3,), (1, 2, 4))
    assert vb.multitask(3, 2).clusters == ((0, 1, 2), (0, 1, 2))


def test_a_skeleton_needs_no_jax():
    code = (
        "import sys; sys.modules['jax'] = None; import importlib.util as u; "
        "s = u.spec_from_file_location('skeleton', sys.argv[1]); m = u.module_from_spec(s); "
        "sys.modules['skeleton'] = m; s.loader.exec_module(m); print(m.chain(2, 1))"
    )
    path = sys.modules["vertebra.networks.skeleton"].__file__
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("inputs x0 x1\nlayer h1 = tanh(x0 x1)")


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([[Node("a", ["q"])]], "Node 'a' of layer 1 has an unknown parent 'q'"),
        ([[Node("a", ["x"])], []], "Layer 2 is empty"),
        ([[Node("a", ["x"]), Node("b", ["x"])], [Node("c", ["a"])]], "Node 'b' of layer 1 reaches no output"),
        ([[Node("a", [])]], "Node 'a' of layer 1 reads nothing"),
        ([[Node("a", ["a"])]], "Node 'a' of layer 1 has the parent 'a' of layer 1: a parent must be in the layer just"),
        ([[Node("a", ["x"])], [Node("b", ["x"])]], "Node 'b' of layer 2 has the parent 'x' of layer 0"),
        ([[Node("a", ["b"])], [Node("b", ["a"])]], "so that no cycle can arise"),
        ([[Node("a", ["x", "x"])]], "Node 'a' of layer 1 lists its parent 'x' twice"),
        ([[Node("x", ["x"])]], "Two nodes are called 'x'"),
        ([], "`layers` must hold at least one layer"),
    ],
)
def test_a_bad_graph_is_refused_by_name(layers, words):
    with pytest.raises(ValueError, match="^" + words.replace("(", r"\(") if words[0] != "s" else words):
        Skeleton(("x",), layers)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Skeleton((), [[Node("a", ["x"])]]), "`inputs` must name at least one input"),
        (lambda: Skeleton(("x", "x"), [[Node("a", ["x"])]]), "`inputs` holds the name 'x' twice"),
        (lambda: Skeleton(("x",), [[Node("a", ["x"])]], [Output("y", ["b"])]), "Output 'y' has an unknown parent 'b'"),
        (
            lambda: Skeleton(("x",), [[Node("a", ["x"])]], [Output("y", ["x"])]),
            "Output 'y' has the parent 'x' of layer 0",
        ),
        (lambda: vb.chain(0, 1), "`n_inputs` must be a whole number of at least 1, got 0"),
        (lambda: vb.chain(2, 0), "`depth` must be a whole number of at least 1, got 0"),
        (lambda: vb.additive(2, 0, 1), "`n_subnetworks` must be a whole number of at least 1, got 0"),
        (lambda: vb.additive(2), "needs `n_subnetworks` or `clusters`"),
        (lambda: vb.additive(2, 3, 1, clusters=[(0,)]), "`n_subnetworks` must be the number of `clusters`, 1"),
        (lambda: vb.additive(2, clusters=[(0, 2)]), r"`clusters\[0\]` must hold positions from 0 to 1, got 2"),
        (lambda: vb.additive(2, clusters=[]), "`clusters` must hold at least one cluster"),
        (lambda: vb.additive(2, clusters=[()]), "Node 'g0_1' of layer 1 reads nothing"),
        (lambda: vb.multitask(2, 1, 2, shared=2), "`shared` must be from 0 to depth - 1 = 1, got 2"),
        (lambda: vb.multitask(2, 0), "`n_tasks` must be a whole number of at least 1, got 0"),
        (lambda: Skeleton.from_text("nodes x"), "must have lines that begin with `inputs`"),
        (lambda: Skeleton.from_text("inputs x\nlayer a tanh x"), "must write a node as"),
        (lambda: Skeleton.from_json("{}"), "is not the JSON form of a skeleton"),
        (lambda: Skeleton.from_json("["), "is not the JSON form of a skeleton"),
    ],
)
def test_bad_arguments_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
