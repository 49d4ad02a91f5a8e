"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "6552877ac6a65e0b587372ff2f5ad5da6c40d3334e0cdb048a24ae0d01fb95b0"
