"""The Triton kernels with which trimul.machine looks into a GPU's memory."""

import triton
import triton.language as tl


@triton.jit
def copy_in_pieces(source, target, count, PIECE: tl.constexpr):
    """Each program copies piece after piece, one piece in flight at a time.

    With P programs about ``P * PIECE * 4`` bytes are on their way at any moment.
    """
    program, programs = tl.program_id(0), tl.num_programs(0)
    for piece in range(program, tl.cdiv(count, PIECE), programs):
        offsets = piece.to(tl.int64) * PIECE + tl.arange(0, PIECE)
        inside = offsets < count
        tl.store(target + offsets, tl.load(source + offsets, mask=inside, other=0.0), mask=inside)


@triton.jit
def chase(next_index, end, hops):
    """One thread follows a chain of indices: every load waits for the one before it."""
    position = tl.load(end)
    for _ in range(hops):
        position = tl.load(next_index + position)
    tl.store(end, position)
