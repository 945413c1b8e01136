"""What the computer gives: cores, devices, processes, files written whole, checkpoints, progress and budgets."""
