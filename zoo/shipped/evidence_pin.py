"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "b2d722791d71f73dea1fe611eee3bed5bedef7fe876f1a84c6702650719aec83"
