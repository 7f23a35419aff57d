"""Server of homebody."""
