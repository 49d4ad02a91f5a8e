"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "165a2d8b8a5390f25800967955accb1956355089f656015773ef17fdb135d314"
