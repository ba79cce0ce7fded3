"""Programs for those who work on the package; it imports none of them."""
