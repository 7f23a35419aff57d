"""Server of tide."""
