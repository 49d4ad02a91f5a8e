"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "113f03ea977227f7378da7c53f1579fa5b6b240ba3d92b1bb787c910e05cd4eb"
