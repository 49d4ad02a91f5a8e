"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "87336e55367058f54587259ab982c08f9c73bbf1c5184dd277a638876c1f498f"
