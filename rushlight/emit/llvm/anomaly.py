"""Anomaly checks in LLVM IR: the largest magnitude seen, as bits. See Note [Anomaly kernels].

As an unsigned integer without its sign bit, a float is largest when it is NaN, then when it is
infinite. So a running maximum of these words, two instructions per element, tells at the end of the
function what was found.
"""

from __future__ import annotations

from rushlight.core.dtypes import DType
from rushlight.emit.llvm.text import COMPUTE, STORED, Slot, Writer, suffix, vector
from rushlight.kernel.shapes import LOADED, Map, Rowwise

# By a float's type in memory: its word type, the mask without the sign bit, infinity's word.
WORDS = {
    "half": ("i16", 0x7FFF, 0x7C00),
    "i16": ("i16", 0x7FFF, 0x7F80),  # bfloat16
    "float": ("i32", 0x7FFFFFFF, 0x7F800000),
    "double": ("i64", 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000),
}


class AnomalyCheck:
    """The running maxima of one function."""

    def __init__(self, writer: Writer, inputs: tuple[int, ...], flag: int) -> None:
        self.writer, self.inputs, self.flag = writer, inputs, flag
        self.tops: dict[tuple[bool, str, int], Slot] = {}

    def store(self, raw: str, dtype: DType, width: int, mask: str | None) -> None:
        """Check a value that is about to be stored, in its storage type."""
        if dtype.kind == "f":
            self._take(False, raw, STORED[dtype], width, mask)

    def load(self, k: int, value: str, dtype: DType, width: int, mask: str | None) -> None:
        """Check elements of input k, as compute values.

        Lanes that are no elements are 0 or masked.
        """
        if dtype.kind == "f" and k in self.inputs:
            self._take(True, value, COMPUTE[dtype], width, mask)

    def _take(self, loaded: bool, value: str, scalar: str, width: int, mask: str | None) -> None:
        writer = self.writer
        word, magnitude, _ = WORDS[scalar]
        type_ = vector(word, width)
        key = (loaded, scalar, width)
        if key not in self.tops:
            self.tops[key] = writer.first_slot(type_, "0" if width == 1 else "zeroinitializer")
        top = self.tops[key]
        bits = (
            value
            if scalar == word
            else writer.value(f"bitcast {vector(scalar, width)} {value} to {type_}")
        )
        mask_word = str(magnitude) if width == 1 else f"splat ({word} {magnitude})"
        size = writer.value(f"and {type_} {bits}, {mask_word}")
        if mask is not None:
            size = writer.value(
                f"select {vector('i1', width)} {mask}, {type_} {size}, {type_} zeroinitializer"
            )
        larger = writer.call(
            type_, f"llvm.umax.{suffix(word, width)}", [(type_, writer.get(top)), (type_, size)]
        )
        writer.set(top, larger)

    def finish(self) -> None:
        """Report the findings at the function's end."""
        writer = self.writer
        found = "0"
        for (loaded, scalar, width), slot in self.tops.items():
            word, _, infinity = WORDS[scalar]
            top = writer.get(slot)
            if width > 1:
                name = f"llvm.vector.reduce.umax.{suffix(word, width)}"
                top = writer.call(word, name, [(slot.type, top)])
            is_nan = writer.value(f"icmp ugt {word} {top}, {infinity}")
            is_infinite = writer.value(f"icmp eq {word} {top}, {infinity}")
            shift = LOADED if loaded else 1
            nan = writer.value(f"select i1 {is_nan}, i32 {shift}, i32 0")
            bits = writer.value(f"select i1 {is_infinite}, i32 {2 * shift}, i32 {nan}")
            found = bits if found == "0" else writer.value(f"or i32 {found}, {bits}")
        if found == "0":
            return
        with writer.when(writer.value(f"icmp ne i32 {found}, 0")):
            place = writer.value(f"getelementptr i64, ptr %args, i64 {self.flag}")
            flag = writer.value(f"load ptr, ptr {place}")
            writer.value(f"atomicrmw or ptr {flag}, i32 {found} monotonic")


def checked_writer(writer: Writer, kernel: Map | Rowwise, arguments: int) -> Writer:
    """The writer of a kernel's function, with anomaly checks if the kernel has them."""
    if kernel.anomaly is not None:
        writer.anomaly = made = AnomalyCheck(writer, kernel.anomaly, arguments)
        writer.ends.append(made.finish)
    return writer
