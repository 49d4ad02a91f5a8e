"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "d58600151f6bed5ab243ee27591a3f4e1fbefaa4251dca435cce22d2a011f3fe"
