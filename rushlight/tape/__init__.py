"""The record of all calls, and everything that reads it.

Owns: Value, Node, recording, backward, modes, hooks, replay, checkpoint, budget.
Takes: ops (as plans and derivative rules), devices' pools. Gives: values, gradients, rebuilt
storage.
Never: branches on an op's name, knows a kernel's text, does maths of its own.
"""
