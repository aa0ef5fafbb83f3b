"""backends.py - the servers that peers talk to.

Redis servers are given by URL; etcd and PostgreSQL are started here, on free loopback ports, and
end with this process. Each backend reports the commands that it got and the CPU time that it
used."""
import glob
import os
import pwd
import re
import socket
import subprocess
import time
import urllib.request

import processes

READY_SECONDS = 20


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def until(ready, server, what):
    end = time.monotonic() + READY_SECONDS
    while not ready():
        if server.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"{what} does not start")
        time.sleep(0.02)


class Redis:
    """Servers that run already: redis://A, or several as redlock://A,B,C."""

    def __init__(self, url):
        import redis  # here, so that etcd can be measured without the Python client for Redis
        scheme, _, rest = url.partition("://")
        hosts, _, path = rest.partition("/")
        self.urls = [f"redis://{host}/{path or 0}" for host in hosts.split(",")]
        self.url = ",".join(self.urls)
        self.clients = [redis.Redis.from_url(u, socket_timeout=0.3, socket_connect_timeout=0.3) for u in self.urls]
        self.gone = redis.RedisError
        self.pids = [info["process_id"] for info in self.info("server")]

    def info(self, section):
        """INFO of the servers that answer: some are dead or hang on purpose."""
        found = []
        for client in self.clients:
            try:
                found.append(client.info(section))
            except self.gone:
                pass
        return found

    def cpu_us(self):
        return sum(processes.cpu_us(pid) for pid in self.pids)

    def commands(self, names):
        """How often clients sent these commands; scripts inside the server call others."""
        keys = [f"cmdstat_{name}" for name in names.split(",")]
        return sum(info[key]["calls"] for info in self.info("commandstats") for key in keys if key in info)

    def close(self):
        pass


class Started:
    """A server that is started here, with its folder."""

    def __init__(self, folder, cpu):
        self.folder = folder
        self.port = free_port()
        os.makedirs(folder)
        self.server = self.start(processes.pinned(cpu))

    def run(self, prefix, command, **options):
        log = open(os.path.join(self.folder, "log"), "ab")
        return subprocess.Popen([*prefix, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **options)

    def cpu_us(self):
        return sum(processes.cpu_us(pid) for pid in processes.tree(self.server.pid))

    def commands(self, names):
        return None

    def close(self):
        self.server.kill()
        self.server.wait()


class Etcd(Started):
    def start(self, prefix):
        peer = f"http://127.0.0.1:{free_port()}"
        self.url = f"http://127.0.0.1:{self.port}"
        server = self.run(prefix, [
            "etcd", "--name", "s1", "--data-dir", os.path.join(self.folder, "data"),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url, "--listen-peer-urls", peer,
            "--initial-advertise-peer-urls", peer, "--initial-cluster", f"s1={peer}",
        ], env={"PATH": os.environ["PATH"]})
        until(self.healthy, server, "etcd")
        return server

    def healthy(self):
        try:
            return b'"true"' in urllib.request.urlopen(self.url + "/health", timeout=1).read()
        except OSError:
            return False


class Postgres(Started):
    """Runs as the user that the Debian package created, because PostgreSQL refuses to run as root.
    Advisory locks are not written to disk, so fsync does not matter."""

    def start(self, prefix):
        programs = max(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: int(re.search(r"\d+", path)[0]))
        # In this order: a process that changes its user loses the signal for the death of its
        # parent.
        prefix = [*self.unprivileged(), *prefix]
        data = os.path.join(self.folder, "data")
        made = self.run(prefix, [f"{programs}/initdb", "-D", data, "-U", "bench", "-A", "trust", "--no-sync"])
        if made.wait() != 0:
            raise RuntimeError(f"initdb failed: see {self.folder}/log")
        self.url = f"postgresql://bench@127.0.0.1:{self.port}/postgres"
        server = self.run(prefix, [
            f"{programs}/postgres", "-D", data, "-p", str(self.port), "-c", "listen_addresses=127.0.0.1",
            "-c", "unix_socket_directories=", "-c", "max_connections=200", "-c", "fsync=off",
        ])
        until(lambda: subprocess.call([f"{programs}/pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]) == 0,
              server, "PostgreSQL")
        return server

    def unprivileged(self):
        if os.geteuid() != 0:
            return []
        user = pwd.getpwnam("postgres")
        os.chown(self.folder, user.pw_uid, user.pw_gid)
        return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


class Folder:
    """No server: locks are files in a folder."""

    def __init__(self, folder):
        self.url = folder
        os.makedirs(folder, exist_ok=True)

    def cpu_us(self):
        return None

    def commands(self, names):
        return None

    def close(self):
        pass


def backend(engine, url, scratch, cpu):
    if engine == "redis":
        return Redis(url)
    if engine == "etcd":
        return Etcd(os.path.join(scratch, "etcd"), cpu)
    if engine == "postgres":
        return Postgres(os.path.join(scratch, "postgres"), cpu)
    return Folder(os.path.join(scratch, "files"))
