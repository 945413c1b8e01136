"""A table becomes a matrix and back; rows in memory, in files, on a cluster."""
