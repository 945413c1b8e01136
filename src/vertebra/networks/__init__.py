"""The paper's first half: skeletons, blocks, Algorithm 1, schemes, priors."""
