"""One policy per file, each with a `POLICY`. A new file is found by itself."""
