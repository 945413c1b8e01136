"""The data of the demonstration."""

from vertebra.cli.embedded import example


def test_the_classes_of_the_demo_have_names():
    x, y, words, exact = example("breast_cancer")
    assert x.shape == (569, 30)
    assert set(y.values) == {"malignant", "benign"}
    assert "569 tumours" in words
    assert exact is None
