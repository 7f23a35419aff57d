"""Server of toolbox."""
