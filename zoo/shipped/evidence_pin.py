"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "a33b647a3bdee5bd5e99c6b0478e1ce913c92962a97e6969faa067b5610ad502"
