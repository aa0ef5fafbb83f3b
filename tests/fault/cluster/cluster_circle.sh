#!/usr/bin/env bash
# cluster_circle.sh - nodes that name each other, or themselves, as the owner of a slot: a client follows a few redirects,
# then pauses, and gives up with the reason. The impostor is one process with two names.
. "$(dirname "$0")/../../lib/cli_tap.sh"

cat >impostor.py <<'PY'
"""impostor.py circle|self: a node that has all slots by its own map, and redirects every request for a lock."""
import socketserver
import sys

mode = sys.argv[1]
asks = 0


def bulk(text):
    return b"$%d\r\n%s\r\n" % (len(text), text)


def slot_of(key):
    crc = 0
    for byte in key:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % 16384


class Node(socketserver.StreamRequestHandler):
    def words(self):
        head = self.rfile.readline()
        if not head:
            raise EOFError
        found = []
        for _ in range(int(head[1:])):
            length = int(self.rfile.readline()[1:])
            found.append(self.rfile.read(length + 2)[:-2])
        return found

    def answer(self, words):
        global asks
        verb, port = words[0].upper(), self.server.server_address[1]
        if verb == b"ASKS":
            return b":%d\r\n" % asks
        if verb == b"INFO":
            return bulk(b"redis_version:7.0.15\r\nredis_mode:cluster\r\nrun_id:" + b"1" * 40 + b"\r\nrole:master\r\n")
        if verb == b"CLUSTER":
            node = b"*3\r\n" + bulk(b"127.0.0.1") + b":%d\r\n" % port + bulk(b"a" * 40)
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n" + node
        if verb in (b"FUNCTION", b"SCRIPT"):
            return bulk(b"0" * 40)
        if verb == b"FCALL" and words[1].endswith(b"rights"):
            return b"*0\r\n"
        if verb == b"FCALL":
            asks += 1
            host = b"localhost" if mode == "circle" and asks % 2 else b"127.0.0.1"
            return b"-MOVED %d %s:%d\r\n" % (slot_of(words[3]), host, port)
        return b"+OK\r\n"

    def handle(self):
        try:
            while True:
                self.wfile.write(self.answer(self.words()))
        except (EOFError, ConnectionError):
            pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), Node) as server:
    with open("port", "w") as out:
        out.write(f"{server.server_address[1]}\n")
    server.serve_forever()
PY

for mode in circle self; do
    rm -f port
    setpriv --pdeathsig KILL /usr/bin/python3 impostor.py $mode &
    impostor=$!
    eventually test -s port
    began=$(date +%s%N)
    exits "redirects in a $mode end with 69" 69 "$HOLDFAST" -u "redis+cluster://127.0.0.1:$(cat port)?connect_timeout=300ms" run -n job -- true
    took=$((($(date +%s%N) - began) / 1000000))
    like "which names the slot" "$said" 'nodes name each other for slot [0-9]+: MOVED'
    asks=$(redis-cli -p "$(cat port)" ASKS)
    echo "# $mode: $asks requests in $took ms"
    result "with pauses between redirects" "$([ "$asks" -ge 3 ] && [ "$asks" -le 150 ]; echo $?)" "$asks requests"
    kill $impostor
    wait $impostor 2>/dev/null || true
done
done_testing
