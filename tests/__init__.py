"""The tests, in the rooms of the package. `catalog/` has one row per op.

`conftest.py` the devices.
"""
