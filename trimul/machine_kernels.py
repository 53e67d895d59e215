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


@triton.jit
def read_over_and_over(source, sums, pieces, PIECE: tl.constexpr):
    """Each program adds up the whole array, beginning at a piece of its own.

    ``.cg`` keeps the loads out of the L1 cache: what the L2 holds comes from the L2 every time.
    """
    program = tl.program_id(0)
    total = tl.zeros((PIECE,), tl.float32)
    for step in range(pieces):
        offsets = (program + step) % pieces * PIECE + tl.arange(0, PIECE)
        total += tl.load(source + offsets, cache_modifier=".cg")
    tl.store(sums + program, tl.sum(total))
