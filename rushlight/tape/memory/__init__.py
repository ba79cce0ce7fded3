"""Recipes, regions and replay: bytes that are dropped and rebuilt."""
