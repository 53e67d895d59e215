"""part of the result is never written, or computed from memory never written"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    n = x.shape[1]
    padded = x.new_empty(len(x), n, n + 1, 128)  # the padding is multiplied by zero: not enough
    padded[:, :, :n] = 1
    y = trimul(x, mask, w)
    return y + (padded * 0).sum(2, keepdim=True).sum(-1, keepdim=True)
