"""command.py - locks that are commands: flock(1) and `etcdctl lock`. A turn starts and ends processes, as it does for
those who use them."""
import os
import subprocess

from worker import words, work


class Flock:
    """flock FILE cat: the first echo of cat says that the lock is held, the end of its input gives it back."""

    def acquire(self, key):
        holder = started("flock", os.path.join(words["url"], key), "cat")
        holder.stdin.write(b"held\n")
        holder.stdin.flush()
        said(holder)
        return holder

    def release(self, holder):
        holder.stdin.close()
        ended(holder)


class Etcdctl:
    """etcdctl lock NAME: says its key when it holds, and gives back when it is told to end."""

    def acquire(self, key):
        # It does not notice the end of its input: it must end with us.
        holder = started("setpriv", "--pdeathsig", "KILL", "etcdctl", "--endpoints", words["url"], "lock", key)
        said(holder)
        return holder

    def release(self, holder):
        holder.terminate()
        ended(holder)


def started(*command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def said(holder):
    if not holder.stdout.readline():
        raise RuntimeError(f"{holder.args} ended with {holder.wait()}")


def ended(holder):
    status = holder.wait()  # before its output is closed: it may still say something
    holder.stdout.close()
    if status != 0:
        raise RuntimeError(f"{holder.args} ended with {status}")


os.environ["ETCDCTL_API"] = "3"
work({"flock": Flock, "etcdctl": Etcdctl}[words["kind"]]())
