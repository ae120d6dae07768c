"""Nobody is told that a server was started."""

import subprocess
import sys

CHILD = """
import os, sys

def no_fork():
    raise AssertionError("a child was forked at import")

os.fork = no_fork
import everystep.runner.openvino_runner
import openvino.tools.ovc
print(type(openvino.tools.ovc.telemetry).__module__)
"""


def test_openvino_is_imported_without_its_telemetry():
    """Its own stub takes the events, and no child is forked to send them."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    assert done.stdout.strip().startswith("openvino.tools.ovc.telemetry_")
    assert "stub" in done.stdout
