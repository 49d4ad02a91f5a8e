"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "32536dc19d9b254c5b790798915865b87ab5a729098d8194ce4172b19b6ee552"
