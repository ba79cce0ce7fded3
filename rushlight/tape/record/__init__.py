"""Values, nodes and calls: the record of an op call on the tape."""
