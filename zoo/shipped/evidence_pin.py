"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "763d8d957b2ec03988d9ed6f01efa019e73936857ad03f3ef392b2eb2dda0855"
