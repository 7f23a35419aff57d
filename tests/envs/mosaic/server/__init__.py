"""Server of mosaic."""
