"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "8002098b79128e336fa2a4b0a65b4e38d80939cb58fd058f0694415c2a094eeb"
