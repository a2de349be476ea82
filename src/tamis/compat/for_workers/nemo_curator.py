"""What ``import nemo_curator`` finds in a worker process of a driver in which compat is active."""

import importlib
import sys

from tamis import compat

if __name__ == "nemo_curator":
    del sys.modules[__name__]
    compat.activate()
    sys.modules[__name__] = importlib.import_module(__name__)
