"""Forward mode: values with tangents."""
