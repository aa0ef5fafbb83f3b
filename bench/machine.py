"""machine.py - the machine of the bench and the versions of what it measures, without its owner."""
import glob
import json
import os
import platform
import re
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAMS = [
    ("gcc", ["gcc", "-dumpfullversion"]), ("Redis", ["redis-server", "--version"]), ("Node", ["node", "--version"]),
    ("etcd", ["etcd", "--version"]), ("PostgreSQL", ["pg_config", "--version"]), ("flock", ["flock", "--version"]),
]


def first(pattern, path):
    with open(path) as file:
        found = re.search(pattern, file.read(), re.MULTILINE)
    return found[1].strip() if found else "unknown"


def version(command):
    """The first version number in the output; None if the program is not installed."""
    if not shutil.which(command[0]):
        return None
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else None


def python_redis():
    said = subprocess.run(["/usr/bin/python3", "-c", "import redis; print(redis.__version__)"], capture_output=True,
                          text=True, check=False).stdout.strip()
    return said or None


def npm_packages():
    """(folder, name, version) of each npm package that is installed."""
    home = os.environ.get("PEERS_HOME", os.path.join(ROOT, "build/bench/peers"))
    for path in sorted(glob.glob(f"{home}/node_modules/*/package.json")):
        with open(path) as file:
            known = json.load(file)
        yield os.path.basename(os.path.dirname(path)), known["name"], known["version"].lstrip("v")


def wanted_packages():
    with open(os.path.join(ROOT, "bench/peers/package.json")) as file:
        wanted = json.load(file)["dependencies"]
    return [(name, found) for folder, name, found in npm_packages() if folder in wanted]


def versions():
    known = [(name, version(command)) for name, command in PROGRAMS] + [("python-redis", python_redis())]
    return [f"{name} {found}" for name, found in known + wanted_packages() if found]


def lines(date, repetitions):
    """The lines above the figures. `repetitions`: smallest and largest number; 1 is a quick run."""
    least, most = repetitions
    memory = int(first(r"^MemTotal:\s+(\d+)", "/proc/meminfo")) / 2**20
    model = first(r"^model name.*: (.*)$", "/proc/cpuinfo")
    system = first(r"^PRETTY_NAME=.(.*?).$", "/etc/os-release")
    command = "`make bench`" if most > 1 else "`make bench QUICK=1`"
    times = "one repetition, so there is no spread"
    if most > 1:
        times = f"{least} to {most} repetitions" if least < most else f"{most} repetitions"
    return [
        f"- Command: {command}, {times}, {date}",
        f"- Machine: {os.cpu_count()} CPUs ({model}), {memory:.0f} GB of memory",
        f"- System: {system}, Linux {re.match(r'[0-9.]+', platform.release())[0]}",
        f"- Versions: {', '.join(versions())}",
        "",
    ]
