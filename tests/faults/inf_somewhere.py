"""NaN or inf in the result"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    y = trimul(x, mask, w)
    y[0, 0, 0, 7] = float("inf")
    return y
