"""returns a tensor of layout torch.sparse_coo, not a dense one"""

from _right import trimul


def custom_kernel(data):
    return trimul(*data[:3]).to_sparse()
