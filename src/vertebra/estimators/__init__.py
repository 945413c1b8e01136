"""scikit-learn's interface: each estimator holds the record of its fit, and says what it is asked of it."""

from vertebra.estimators.additive import AdditiveClassifier, AdditiveRegressor
from vertebra.estimators.loading import load
from vertebra.estimators.skeleton import SkeletonClassifier, SkeletonRegressor

__all__ = ["AdditiveClassifier", "AdditiveRegressor", "SkeletonClassifier", "SkeletonRegressor", "load"]
