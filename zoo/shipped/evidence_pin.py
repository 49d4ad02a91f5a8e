"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "45c239d0212c2d6d387e566f9b9d0c16b9cdb308f63b80f8ef57a4fdfca27df0"
