"""For all tests: kernels are compiled before they are needed, once, and used; Ctrl-C is heard."""

import os
import signal

os.environ.setdefault("TAMIS_KERNELS", "wait")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell in the background has it ignored, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
