"""What the computer gives: cores, devices, processes, whole files, checkpoints, progress."""
