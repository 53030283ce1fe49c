"""Runs gputrace's workers as tasks of Ray, as gputrace says on standard input, and tells on standard output how they end.

Lines of JSON. In: {"start": number, "command": [...]}, {"stop": [numbers]}. Out: {"ready": cpus}, {"cpus": cpus},
{"began": number}, {"ended": number, "how": null or words}. When standard input ends, so do the tasks.
"""

import json
import os
import pathlib
import queue
import secrets
import signal
import sys
import threading
import time

signal.signal(signal.SIGINT, signal.SIG_IGN)  # From a terminal; gputrace ends us.
directory, address = sys.argv[1], sys.argv[2] or None
out, lock = os.fdopen(os.dup(1), "w"), threading.Lock()
os.dup2(2, 1)  # What Ray prints is no line of ours.


def say(**line):
    with lock:
        print(json.dumps(line), file=out, flush=True)


def has_token():
    path = os.environ.get("RAY_AUTH_TOKEN_PATH") or pathlib.Path.home() / ".ray" / "auth_token"
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or pathlib.Path(path).is_file()


address = address or os.environ.get("RAY_ADDRESS") or None
own = address is None or address == "local"
os.environ.setdefault("RAY_AUTH_MODE", "token" if own or has_token() else "disabled")
if os.environ["RAY_AUTH_MODE"] == "token" and not has_token() and own:
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")

try:
    import ray
except ImportError as error:
    say(fatal=f"{sys.executable} has no Ray ({error}): pip install ray, or name another Python with GPUTRACE_PYTHON")
    sys.exit(0)

try:
    settings = dict(log_to_driver=False, logging_level="ERROR", namespace="gputrace")
    if own:
        ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **settings)
    else:
        ray.init(address=address, **settings)
except Exception as error:  # Whatever it is, it is the user's cluster that has to be mended.
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    say(fatal=f"no Ray at {address or 'this machine'}: {lines[0] if lines else type(error).__name__}")
    sys.exit(0)
if os.environ["RAY_AUTH_MODE"] != "token":
    say(warning="this Ray cluster asks for no token: whoever reaches it can run anything there (RAY_AUTH_MODE=token)")


def cpus():
    return int(ray.cluster_resources().get("CPU", 0))


# We try again ourselves: what kills its worker must not do so for ever.
@ray.remote(num_cpus=1, max_retries=0)
def work(command, directory):
    import ctypes
    import signal
    import subprocess

    def end_with_parent():
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)

    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        preexec_fn=end_with_parent,
    )
    if done.returncode == 0:
        return None
    how = f"killed by signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
    lines = done.stderr.decode(errors="replace").split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    return f"{how} ({lines[-1][:200]})" if lines else how


asked = queue.Queue()


def listen():
    for line in sys.stdin:
        asked.put(json.loads(line))
    asked.put(None)


threading.Thread(target=listen, daemon=True).start()
say(ready=cpus())
running, looked = {}, time.monotonic()
while True:
    try:
        while True:
            line = asked.get(timeout=0 if running else 0.2)
            if line is None:
                ray.shutdown()
                sys.exit(0)
            if "start" in line:
                running[work.remote(line["command"], directory)] = line["start"]
                say(began=line["start"])
            for reference in [key for key, number in running.items() if number in line.get("stop", ())]:
                del running[reference]
                ray.cancel(reference, force=True)
    except queue.Empty:
        pass
    if running:
        ended, _ = ray.wait(list(running), num_returns=len(running), timeout=0.05)
        for reference in ended:
            number = running.pop(reference)
            try:
                how = ray.get(reference)
            except Exception as error:
                how = f"its Ray worker died ({type(error).__name__})"
            say(ended=number, how=how)
    if time.monotonic() - looked > 5:
        looked = time.monotonic()
        say(cpus=cpus())
