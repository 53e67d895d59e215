"""the first norm lacks its epsilon"""

from _right import trimul


def custom_kernel(data):
    x, mask, w, _ = data
    x = x.double()
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False)
    return trimul(x.float(), mask, w)
