"""Views of memory, copies that join and repeat, writes in place."""
