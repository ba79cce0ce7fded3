"""Blocks of random words (`scalar/philox.py`) as a function: a loop over the rounds of all blocks.

A round of one block mostly waits for its products, so the blocks of one formula run side by side.
Written out they take long to build. A single block stays in its formula, unless that is long
itself.
"""

from __future__ import annotations

from rushlight.emit.llvm.text import Slot, Writer, vector
from rushlight.scalar.ir import Expr, topological
from rushlight.scalar.philox import BLOCKS, MULTIPLIERS, ROUNDS, WEYL, Block

LONG = 300  # instructions of a formula in which a call for one block costs nothing
HEAD = (
    "define internal {result} @random_words({given}) noinline "
    '"prefer-vector-width"="512" "min-legal-vector-width"="512"'
)


def blocks_in(every: tuple[Expr, ...]) -> list[Block]:
    """The blocks of a formula that become a call: of one key, none made from another's words."""
    found = list({id(BLOCKS[e]): BLOCKS[e] for e in every if e in BLOCKS}.values())
    if len(found) < (1 if len(every) > LONG else 2) or any(
        block.key != found[0].key for block in found
    ):
        return []
    before = topological(tuple(expr for block in found for expr in block.given))
    return [] if any(expr in BLOCKS for expr in before) else found


def call_blocks(
    writer: Writer, blocks: list[Block], done: dict[Expr, str], width: int
) -> dict[Expr, str]:
    """The words of all blocks, by name; `done` names their operands."""
    type_ = vector("i32", width)
    result = _result(type_, len(blocks))
    writer.declared.add(_function(width, len(blocks)))
    given = [done[e] for e in (*blocks[0].key, *(e for block in blocks for e in block.counter))]
    made = writer.value(f"call {result} @random_words({', '.join(f'{type_} {v}' for v in given)})")
    words = [word for block in blocks for word in block.made]
    return {
        word: writer.value(f"extractvalue {result} {made}, {i}") for i, word in enumerate(words)
    }


def _result(type_: str, count: int) -> str:
    return "{ " + ", ".join([type_] * 4 * count) + " }"


def _function(width: int, count: int) -> str:
    writer, type_ = Writer(set()), vector("i32", width)
    names = [f"%given{i}" for i in range(2 + 4 * count)]
    slots = [writer.slot(type_, name) for name in names]
    with writer.loop("0", str(ROUNDS)):
        keys = [writer.get(slot) for slot in slots[:2]]
        for first in range(2, len(slots), 4):
            _write_round(writer, slots[first : first + 4], keys, width)
        for slot, key, step in zip(slots, keys, WEYL, strict=False):
            writer.set(slot, writer.value(f"add {type_} {key}, splat (i32 {step})"))
    made = "poison"
    result = _result(type_, count)
    for i, slot in enumerate(slots[2:]):
        made = writer.value(f"insertvalue {result} {made}, {type_} {writer.get(slot)}, {i}")
    given = ", ".join(f"{type_} {name}" for name in names)
    return writer.function(HEAD.format(result=result, given=given), f"{result} {made}")


def _write_round(writer: Writer, slots: list[Slot], keys: list[str], width: int) -> None:
    type_, wide = vector("i32", width), vector("i64", width)
    words = [writer.get(slot) for slot in slots]
    mixed = []
    for word, other, key, multiplier in zip(
        words[::2], words[:0:-2], keys[::-1], MULTIPLIERS, strict=True
    ):
        long = writer.value(f"zext {type_} {word} to {wide}")
        product = writer.value(f"mul {wide} {long}, splat (i64 {multiplier})")
        high = writer.value(f"lshr {wide} {product}, splat (i64 32)")
        high = writer.value(f"trunc {wide} {high} to {type_}")
        low = writer.value(f"mul {type_} {word}, splat (i32 {multiplier})")
        mixed += [
            low,
            writer.value(f"xor {type_} {writer.value(f'xor {type_} {high}, {other}')}, {key}"),
        ]
    for slot, value in zip(slots, reversed(mixed), strict=True):
        writer.set(slot, value)
