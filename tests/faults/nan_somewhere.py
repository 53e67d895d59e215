"""NaN or inf in the result"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = trimul(x, mask, w)
    y[-1, -1, -1, -1] = float("nan")
    return y
