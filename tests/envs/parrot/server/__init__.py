"""Server of parrot."""
