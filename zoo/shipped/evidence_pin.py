"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "61d9aa93b70b3a09f2cd455bd45d5fe45c7488fd65f3861303101b3d6ae397dd"
