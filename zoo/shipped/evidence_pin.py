"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "6653374eed65c4233a8d11eb2634b2ca57ed20683424cfd2ca4221456756f122"
