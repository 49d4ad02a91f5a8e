"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "a4fdfd958a3299fb22d917594a5b1c303f9e45d8e2d2a6938842894126eac140"
