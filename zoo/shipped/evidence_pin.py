"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "4b37439cfc592115fca0fbec7ccd077d1ed7e0b9fd76eab7b61b0063bda1f01d"
