"""copies.py - a Celery task that is sent twelve times builds its report once.

    copies.py [URL]     # a Redis server, for the tasks and for the lock; default: redis://localhost
"""
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse

import celery
import holdfast

URL = os.environ.get("HOLDFAST_URL", "redis://localhost")
QUEUE = urllib.parse.urlsplit(URL)._replace(path="/1", query="").geturl()  # beside the locks, in another database
app = celery.Celery("copies", broker=QUEUE, backend=QUEUE)
locks = holdfast.Client(URL)  # opens when first used: each process of the worker has its own


@app.task(acks_late=True)
def build(file):
    try:
        with locks.lock("report", wait=0) as lease:
            if os.path.exists(file):
                return "done before"
            time.sleep(0.3)
            with open(file, "x") as report:
                report.write(f"built by pid {os.getpid()} with token {lease.token}\n")
            return "built"
    except holdfast.Busy:
        return "busy"


def worker():
    return subprocess.Popen([sys.executable, "-m", "celery", "-A", "copies", "worker", "--pool", "prefork", "-c", "3",
                             "--without-gossip", "--without-mingle", "-l", "ERROR"],
                            cwd=os.path.dirname(os.path.abspath(__file__)), env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})


def main():
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "report")
        process = worker()
        try:
            tasks = [build.delay(file) for _ in range(12)]
            said = sorted(task.get(timeout=60) for task in tasks)
        finally:
            process.terminate()
            process.wait()
        with open(file) as report:
            print(report.read(), end="")
    print({word: said.count(word) for word in sorted(set(said))})
    assert said.count("built") == 1, said
    print("proved: of 12 copies of the task one built the report, and the others left it alone")


if __name__ == "__main__":
    if len(sys.argv) > 1 and os.environ.get("HOLDFAST_URL") != sys.argv[1]:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "HOLDFAST_URL": sys.argv[1]})
    from copies import build  # the task has the name that the worker knows

    main()
