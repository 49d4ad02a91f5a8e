"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "71836887c6e2e839078cd0480d4db63fbe0acfca520f94bd344e4ef5d3199a02"
