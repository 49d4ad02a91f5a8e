"""What tools/generate_docs.py writes: pages, tables and a picture, made of the manifest and the evidence."""
