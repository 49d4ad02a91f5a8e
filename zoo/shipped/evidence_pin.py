"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "67cdfade8b786b9e441579ea0aff61fdab7bcaab9f55af43786cea1e513644d4"
