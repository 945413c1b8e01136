"""scikit-learn's interface: an estimator holds the record of its fit, and asks it."""

from vertebra.estimators.additive import AdditiveClassifier, AdditiveRegressor
from vertebra.estimators.loading import load
from vertebra.estimators.skeleton import SkeletonClassifier, SkeletonRegressor

__all__ = ["AdditiveClassifier", "AdditiveRegressor", "SkeletonClassifier", "SkeletonRegressor", "load"]
