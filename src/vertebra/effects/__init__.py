"""The posterior of f, taken apart: components, measures, strengths, bands."""
