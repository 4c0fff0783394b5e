"""The Move Stream's tar: paths, manifest, reader and writer (Move Stream, sections 2 and 3)."""
