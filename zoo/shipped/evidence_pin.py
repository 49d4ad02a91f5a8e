"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "66d507054f47f9d3b3defe9a9eadcae32aa05590fc1e910ab52221377dd4f53f"
