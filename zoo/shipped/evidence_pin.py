"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "c5ade3e729bda07112812cc0e0d2655fea649e63efd25875c6fa7a8e5a198612"
