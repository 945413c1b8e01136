"""scikit-learn's interface: read, fit, predict, explain, evaluate, judge."""

from vertebra.estimators.scikit import AdditiveClassifier, AdditiveRegressor, SkeletonClassifier, SkeletonRegressor

__all__ = ["AdditiveClassifier", "AdditiveRegressor", "SkeletonClassifier", "SkeletonRegressor"]
