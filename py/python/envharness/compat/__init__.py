"""Other projects' names over envharness's clients."""
