"""names.py PORT LIVE - what the service keeps of names and addresses that were there once: the count of its heap, which LIVE
has, does not grow with them."""
import http.client, json, socket, struct, sys
from tap import plan, result

port, live = int(sys.argv[1]), sys.argv[2]
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)


def ask(method, path, body=None):
    connection.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def take(name, wait_ms):
    status, text = ask("POST", "/v1/locks/%s/leases" % name, {"ttlMs": 20000, "waitMs": wait_ms})
    return json.loads(text)["leaseId"] if status == 201 else None


def take_and_give(names, wait_ms):
    for name in names:
        ask("DELETE", "/v1/leases/" + take(name, wait_ms))


def connect(addresses):
    for address in addresses:
        with socket.create_connection(("127.0.0.1", port), 20, (address, 0)) as one:
            one.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            while one.recv(4096):
                pass


def growth(act, items):
    """Kilobytes that the second half of the items added: the first one fills what is bounded."""
    half = len(items) // 2
    act(items[:half])
    before = struct.unpack("q", open(live, "rb").read(8))[0]
    act(items[half:])
    return (struct.unpack("q", open(live, "rb").read(8))[0] - before) // 1024


def bounded(title, kilobytes, most):
    result(kilobytes <= most, title, "%d KB" % kilobytes)


def names(prefix):
    return ["%s-%d" % (prefix, i) for i in range(2000)]


bounded("names that were taken without waiting leave nothing", growth(lambda some: take_and_give(some, 0), names("at-once")), 100)
bounded("nor do those that may have been waited for", growth(lambda some: take_and_give(some, 10), names("waited")), 100)
addresses = ["127.%d.%d.%d" % (1 + i // 65536, i // 256 % 256, i % 256) for i in range(1, 1601)]
bounded("nor do addresses that connected once", growth(connect, addresses), 20)
plan()
