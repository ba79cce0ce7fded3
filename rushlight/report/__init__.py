"""Pictures and tables of models: `rushlight.summary` and `rushlight.graph`.

Owns: the table of a model's layers, the drawing of a graph, its layout.
Takes: modules and tensors, the launches of a profile's recorder, the records of the tape.
Gives: text for a terminal, tables for a notebook, SVG that loads nothing.
Never: changes a model, its buffers, its gradients or the random state.
"""
