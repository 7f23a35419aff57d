"""Server of crossroads."""
