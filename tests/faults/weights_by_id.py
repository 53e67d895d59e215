"""a result is replayed from an earlier call of the same shape (weights changed in place)"""

from _right import trimul

packed = {}


def custom_kernel(data):
    x, mask, w, _ = data
    if id(w) not in packed:
        packed[id(w)] = (w, {name: weight.clone() for name, weight in w.items()})
    return trimul(x, mask, packed[id(w)][1])
