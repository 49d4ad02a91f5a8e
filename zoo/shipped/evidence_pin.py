"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "0ec3fc82e0946e1007cff05d7b609d64f92007e870cd21ba6daa83ac34ad82eb"
