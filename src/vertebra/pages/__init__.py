"""The report: words, charts, a panel to try inputs, and its assets."""
