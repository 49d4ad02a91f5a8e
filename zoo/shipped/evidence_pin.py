"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "f3c411d8e43e431d7e24e229b86e1c2ccf511b9ddb30f90a248c798f80a6a5ba"
