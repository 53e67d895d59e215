"""NaN or inf where x exceeds 65504: it overflows in fp16"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    return trimul(x.half().float(), mask, w)
