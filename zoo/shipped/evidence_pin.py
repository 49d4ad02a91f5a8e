"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "c775129ee8c058fe8ddcfc8e729b7c70575234d8a457762790a2a502c84f12da"
