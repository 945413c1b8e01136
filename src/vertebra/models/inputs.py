"""What there is to say about the inputs of a sum of terms: marked gaps, levels that go together, copies."""

import numpy as np
from jaxtyping import Float

from vertebra.models.diagnostics import marked_gaps
from vertebra.models.findings import Finding
from vertebra.models.levels import levels_together
from vertebra.models.near_copies import concurvity, equal_inputs, not_compared, open_choices
from vertebra.models.reading import Read
from vertebra.tables.profile import copies_among, copies_of
from vertebra.terms.additive import Additive


def on_inputs(read: Read, matrix: Float[np.ndarray, "n p"], found: Additive, *, is_sought: bool) -> list[Finding]:
    """Findings about inputs, by the rows that terms were sought in; about copies where terms were sought."""
    names, columns = read.names, read.schema.columns
    acting = sorted({i for cluster in found.clusters for i in cluster})
    findings: list[Finding] = []
    # a code among the values of an input may be why it does not act
    for i, column in enumerate(columns):
        if column.kind == "number":
            findings += marked_gaps(column.original(matrix[:, i]), names[i])
    copies = copies_among(copies_of(matrix, read.n_levels), read.rows.matrix, read.n_levels)
    findings += levels_together(matrix, columns, acting, copies)
    if is_sought:
        n = 0 if read.stream is None or read.stream.n_rows == len(matrix) else len(matrix)
        findings += equal_inputs({i: first for i, first in copies.items() if first in acting}, names, n)
        stories = (open_choices(s, names, copies) for s in found.structures)
        findings += dict.fromkeys(finding for each in stories for finding in each)
        # the functions of a fit look at about the same pairs, which are said once
        findings += not_compared(max((s.n_uncompared for s in found.structures), default=0))
    # where terms were sought, which of two acts was looked at
    known = {(s.input, s.other) for each in found.structures for s in each.substitutes}
    return findings + concurvity(matrix, names, acting, known)
