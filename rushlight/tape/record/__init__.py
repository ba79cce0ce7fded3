"""Values, nodes and calls: what an op call leaves on the tape."""
