"""Written when evidence is recorded in a checkout: the evidence that this zoo is released with."""

EVIDENCE_SHA256 = "781103cc8688c189c09da051ecd2cc60cd7959162a37c8670f51c66dcf5d949c"
