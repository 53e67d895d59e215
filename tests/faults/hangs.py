"""hangs: no answer within
in ragged N (N=33"""

import time

from _right import trimul


def custom_kernel(data):
    while data[0].shape[1] == 33:
        time.sleep(1)
    return trimul(*data[:3])
