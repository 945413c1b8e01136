"""Functions of few inputs: their basis, evidence, tests, search, fit."""
