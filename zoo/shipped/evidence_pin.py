"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "34d89ad82b8417274d5a85e93549a3495f5a9c15463f51608163089b4412a3d3"
