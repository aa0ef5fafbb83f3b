# tap.py - what the Python scripts beside it print: TAP, a line a test, and the plan at the end.
# Answers are recorded for serving.sh, which compares them with the OpenAPI document.
import os

count = 0


def result(fine, name, detail=""):
    global count
    count += 1
    print("ok" if fine else "not ok", count, "-", name, flush=True)
    if not fine:
        print("#", detail, flush=True)


def plan():
    print("1..%d" % count)


def record(method, path, status, kind, body):
    """An answer as bytes: its media type and its body."""
    file = os.environ.get("HF_ANSWERS")
    if file and method != "HEAD":
        with open(file, "ab") as out:
            out.write("\n".join((method, path, str(status), kind, "")).encode() + body + b"\0")


def record_raw(data, method="?", path="?"):
    """The answers in what a connection sent; `?` where the request is not one that has a route."""
    while data.startswith(b"HTTP/1.1 ") and b"\r\n\r\n" in data:
        head, data = data.split(b"\r\n\r\n", 1)
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n")[1:])}
        size = int(fields.get(b"content-length", 0))
        status = int(head[9:12])
        if status >= 200 and len(data) >= size:
            record(method, path, status, fields.get(b"content-type", b"").decode(), data[:size])
        data = data[size:]
