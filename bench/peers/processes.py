"""processes.py - the worker processes of a peer: started together, controlled line by line, and
always ended; and the CPU time and memory of any process."""
import glob
import os
import select
import signal
import subprocess
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")
HERE = os.path.dirname(os.path.abspath(__file__))


class Silent(Exception):
    """A worker did not answer in time, or ended."""


def stat(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


def cpu_us(pid):
    """CPU time of all its threads and of its ended children; 0 if the process has ended. Takes the
    larger of two counts: clock ticks are too coarse for a hundred idle processes, and schedstat
    lacks threads that have ended."""
    try:
        own, ended = (sum(int(ticks) for ticks in stat(pid)[i:i + 2]) * 1e6 / TICKS for i in (11, 13))
        threads = glob.glob(f"/proc/{pid}/task/*/schedstat")
        return max(own, sum(scheduled_ns(path) for path in threads) / 1e3) + ended
    except OSError:
        return 0.0


def scheduled_ns(path):
    with open(path) as file:
        return int(file.read().split()[0])


def rss_kb(pid):
    return int(stat(pid)[21]) * os.sysconf("SC_PAGE_SIZE") // 1024


def tree(pid):
    """The process and its children."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [pid, *map(int, file.read().split())]


def pinned(cpu):
    """Prefix of a command: it is killed when this process dies, and runs on that CPU."""
    return ["setpriv", "--pdeathsig", "KILL", *([] if cpu is None else ["taskset", "-c", str(cpu)])]


def program(name):
    path = os.path.join(HERE, name)
    if name.endswith(".mjs"):
        return ["node", path]
    if name.endswith(".py"):
        return [sys.executable, "-B", path]
    return [os.path.abspath(name)]


class Worker:
    def __init__(self, name, cpu, words):
        command = [*pinned(cpu), *program(name), *(f"{key}={value}" for key, value in words.items())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                        start_new_session=True)
        self.name, self.words, self.read = name, words, b""

    def tell(self, line):
        self.process.stdin.write(line.encode() + b"\n")

    def line(self, seconds):
        """The next line of its output, as words. Raises Silent if none comes in that time or it has
        ended."""
        end = time.monotonic() + seconds
        while b"\n" not in self.read:
            ready = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))[0]
            part = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            if not part:
                raise Silent(f"{self.name}: no answer within {seconds:g} s" if not ready else f"{self.name} ended")
            self.read += part
        line, _, self.read = self.read.partition(b"\n")
        return line.decode().split()

    def end(self, seconds=0):
        """Returns its exit status. After that time kills the process, and always what it has left
        behind."""
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        return self.process.wait()


class Crew:
    """Several workers of one peer, spread over at most `processes` processes."""

    def __init__(self, peer, count, processes, cpu, words):
        processes = min(processes, count)
        shares = [count // processes + (i < count % processes) for i in range(processes)]
        firsts = [sum(shares[:i]) for i in range(processes)]
        self.workers, self.sends, self.shares = [], "-", shares
        try:
            for first, share in zip(firsts, shares):
                own = {"first": first, "workers": share, "records": f"{words['scratch']}/turns.{os.getpid()}.{first}"}
                self.workers.append(Worker(peer.program, cpu, {**words, **peer.words, **own}))
            for worker in self.workers:
                self.sends = worker.line(30)[1]
        except BaseException:
            self.close()
            raise

    def cpu_us(self):
        return sum(cpu_us(worker.process.pid) for worker in self.workers)

    def rss_kb(self):
        """Resident memory of one process."""
        return rss_kb(self.workers[0].process.pid)

    def close(self):
        for worker in self.workers:
            worker.end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
