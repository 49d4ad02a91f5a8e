"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "8f3a27f3e981778cf5f63522081ccbf5c4e462077bd95e75093538806d47be6d"
