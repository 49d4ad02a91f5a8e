"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "27969402cfb5785b0b40631eb5527333ac1afb4c152b4f1beb06407478e2928d"
