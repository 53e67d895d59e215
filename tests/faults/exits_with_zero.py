"""kills its process (exit code 0), in case 1"""

import os


def custom_kernel(data):
    os._exit(0)
