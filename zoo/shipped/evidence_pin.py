"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "bf11a80edfa1e40d4b392e2e2ab8d37be17617e369d0ca14b480bcfe4973ff26"
