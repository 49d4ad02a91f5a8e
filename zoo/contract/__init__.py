"""What a manifest says and what follows from it: names, dtypes, expressions, tensor maps, the schema, resolving. Knows no driver."""
