"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "4d17836c857a1ab481b6758ed0273ef2d326021f3bfc34c133b5eccc17059b36"
