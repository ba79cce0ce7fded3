"""Programs: sequences of calls as data.

Owns: `Program`, its trace from calls, its launch on addresses, its record and derivative, and
`memo`. Takes: plans and notes of calls. Gives: plans, derivatives, functions that skip their
Python. Never: knows an op by name.
"""
