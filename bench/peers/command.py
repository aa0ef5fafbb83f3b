"""command.py - locks that are commands: flock(1) and `etcdctl lock`. Each turn starts and ends
processes, as it does for users of these commands."""
import os
import subprocess

from worker import words, work


class Flock:
    """flock FILE cat: the first echo of cat shows that the lock is held; closing its input
    releases."""

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
    """etcdctl lock NAME: prints its key when it holds the lock, and releases on SIGTERM."""

    def acquire(self, key):
        # etcdctl does not notice the end of its input, so it is killed when this process dies.
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
    status = holder.wait()  # before its output is closed: it may still print
    holder.stdout.close()
    if status != 0:
        raise RuntimeError(f"{holder.args} ended with {status}")


os.environ["ETCDCTL_API"] = "3"
work({"flock": Flock, "etcdctl": Etcdctl}[words["kind"]]())
