"""kills its process (signal SIGSEGV), in case 1"""

import ctypes


def custom_kernel(data):
    return ctypes.string_at(0)
