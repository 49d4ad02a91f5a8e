"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "cf5979c8695b79328db42acc8745feecec60a28ff2de2f2811b8df742f005ebb"
