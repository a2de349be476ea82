"""``tamis ui``."""

from __future__ import annotations

import argparse
import os
import sys
import threading

from tamis.cli.output import complain, write


def run(arguments: argparse.Namespace) -> int:
    """Serve pages about runs until Ctrl-C."""
    from tamis.runs.pages.server import RunServer

    if os.path.exists(arguments.target) and not os.path.isdir(arguments.target):
        complain(f"{arguments.target} is a file; give a run directory, or a folder of them")
        return 2
    if not os.path.isdir(arguments.target) and arguments.target != os.path.join(".tamis", "runs"):
        complain(f"there is no directory {arguments.target}")
        return 2
    try:
        server = RunServer(arguments.target, arguments.port)
    except (OSError, OverflowError) as error:
        complain(f"port {arguments.port} cannot be used: {error}")
        return 1
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True)
    try:  # Ctrl-C may come as soon as the address is printed
        write(f"Runs in {server.runs.place}")
        write(server.address)
        write("Only this machine can open this address. Ctrl-C ends the server.")
        sys.stdout.flush()
        thread.start()
        if arguments.open:
            import webbrowser

            webbrowser.open(server.address)
        thread.join()
    except KeyboardInterrupt:
        if thread.is_alive():
            server.shutdown()
    finally:
        server.server_close()
    return 0
