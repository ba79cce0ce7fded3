"""Views of memory, and copies that rearrange dimensions."""
