"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "a935afcdd396dc7b47c0b6c32545ab70103b1b3156b20c2e10fda01c77ef5ad0"
