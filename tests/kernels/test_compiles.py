import os
import subprocess
import sys

import labelhedge as lh


def test_every_closed_form_compiles_for_a_gpu(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.kernels.ahead_of_time"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [n for n in lh.losses.names() if lh.losses.get(n).closed_form is not None]
