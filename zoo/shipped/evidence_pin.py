"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "74b2ad46b877c406ba77fc49e76878489396b9b0555e6afc85b68da380f5b094"
