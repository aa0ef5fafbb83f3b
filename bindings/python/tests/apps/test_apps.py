"""test_apps.py - the recipes of docs/python-recipes.md with Celery, Django and gunicorn themselves, on
shared memory and on Redis: nothing runs twice, and no turn is lost."""
import concurrent.futures
import http.client
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import URLS, on_every_engine  # noqa: E402

PAGE = os.path.join(os.path.dirname(__file__), "..", "..", "..", "..", "docs", "python-recipes.md")
SERVER = next((url for url in URLS if url.startswith("redis:")), "")
TASKS = int(os.environ.get("HF_TASKS", "24"))

# What the recipes leave to their reader. Two that build at once, or count at once, leave a trace.
REPORTS = '''
import os, time
BROKER = os.environ["BROKER"]

def is_done(day):
    return os.path.exists("done-" + day)

def build(day, token):
    mark = os.open("building-" + day, os.O_CREAT | os.O_EXCL)
    time.sleep(0.05)
    with open("built", "a") as built:
        built.write(f"{day} {token} {os.getpid()}\\n")
    open("done-" + day, "w").close()
    os.close(mark)
    os.unlink("building-" + day)

def count():
    with open("visits") as file:
        visits = int(file.read()) + 1
    time.sleep(0.001)
    with open("visits", "w") as file:
        file.write(str(visits))
    return visits
'''


def recipes():
    """The programs of the page, by file."""
    with open(PAGE) as page:
        blocks = re.findall(r"^```python\n# (\S+)\n(.*?)^```", page.read(), re.M | re.S)
    return dict(blocks)


def missing(module):
    return importlib.util.find_spec(module) is None


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class App(unittest.TestCase):
    url = URLS[0]

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        for path, text in {**recipes(), "reports.py": REPORTS, "visits": "0"}.items():
            path = os.path.join(self.folder, path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w") as file:
                file.write(text)
        self.env = {**os.environ, "HOLDFAST_URL": self.url, "BROKER": SERVER + "/1",
                    "PYTHONPATH": self.folder + ":" + os.environ["PYTHONPATH"]}
        self.env.pop("PYTHONDEVMODE", None)  # warnings of others

    def start(self, *words, **options):
        process = subprocess.Popen(words, cwd=self.folder, env=self.env, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
        self.addCleanup(process.stdout.close)
        return process

    def run_python(self, *words):
        process = self.start(sys.executable, *words)
        out = process.communicate(timeout=60)[0]
        self.assertEqual(process.returncode, 0, out)
        return out

    def stop(self, process):
        process.send_signal(signal.SIGTERM)
        try:
            out = process.communicate(timeout=20)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            out = process.communicate()[0]
        return out

    def built(self):
        with open(os.path.join(self.folder, "built")) as built:
            return [line.split() for line in built]


@on_every_engine
@unittest.skipIf(missing("celery"), "python3-celery is not installed")
@unittest.skipUnless(SERVER, "no Redis server was given")
class Celery(App):
    def test_once(self):
        """copies of a Celery task, in three processes: each report is built once"""
        worker = self.start(sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "-c", "3",
                            "--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "WARNING")
        days = max(2, TASKS // 6)
        try:
            out = self.run_python("-c", f"""
import tasks
copies = [tasks.build.delay(str(i % {days})) for i in range({TASKS})]
print(sorted(copy.get(timeout=50) for copy in copies))
""")
        finally:
            said = self.stop(worker)
        built = self.built()
        self.assertEqual(sorted(day for day, _, _ in built), sorted(map(str, range(days))), said)
        self.assertEqual(out.count("'built'"), days, out)
        self.assertEqual(out.count("'done before'") + out.count("'busy'"), TASKS - days, out)


@on_every_engine
@unittest.skipIf(missing("django"), "python3-django is not installed")
class Django(App):
    MANAGE = """
import sys, django.conf, django.core.management
django.conf.settings.configure(INSTALLED_APPS=["app"])
django.core.management.execute_from_command_line(["manage.py", "nightly"])
"""

    def test_command(self):
        """a management command that is started four times at once runs one at a time"""
        for folder in "app", "app/management", "app/management/commands":
            open(os.path.join(self.folder, folder, "__init__.py"), "w").close()
        commands = [self.start(sys.executable, "-c", self.MANAGE) for _ in range(4)]
        said = [command.communicate(timeout=60)[0] for command in commands]
        self.assertEqual([command.returncode for command in commands], [0] * 4, said)
        self.assertEqual(len(self.built()), sum(text.startswith("built, token") for text in said), said)
        for text in said:
            self.assertRegex(text, r"^(built, token \d+|busy: another machine is at it)\n$")
        tokens = [int(token) for _, token, _ in self.built()]
        self.assertEqual(tokens, sorted(set(tokens)))


@on_every_engine
@unittest.skipIf(missing("gunicorn"), "gunicorn is not installed")
class Gunicorn(App):
    def visit(self, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=40)
        connection.request("GET", "/")
        visit = int(connection.getresponse().read())
        connection.close()
        return visit

    def test_preload(self):
        """gunicorn --preload with three workers loses no turn"""
        port = free_port()
        server = self.start(sys.executable, "-m", "gunicorn", "--preload", "--workers", "3", "--timeout", "40",
                            "--bind", f"127.0.0.1:{port}", "--log-level", "warning", "web:application")
        try:
            self.wait_for(port)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                visits = list(pool.map(self.visit, [port] * (TASKS * 5)))
        finally:
            said = self.stop(server)
        first = min(visits)
        self.assertEqual(sorted(visits), list(range(first, first + len(visits))), said)

    def wait_for(self, port):
        end = time.monotonic() + 20
        while True:
            try:
                return self.visit(port)
            except OSError:
                self.assertLess(time.monotonic(), end, "gunicorn did not start")
                time.sleep(0.05)
