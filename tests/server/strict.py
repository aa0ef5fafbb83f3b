#!/usr/bin/env python3
# strict.py - sends raw bytes to a service and compares the status of its first answer: requests that two readers could
# understand differently must be refused and the connection closed, so that nothing behind them is read as a request.
# Behind a proxy, which may refuse or mend a request by itself, each vector hides a request that the proxy denies where it
# sees it: the lock "smuggled" must stay free. Prints TAP. Usage: strict.py PORT [PORT_OF_THE_SERVICE_BEHIND]
import socket
import sys

from tap import plan, record_raw, result

port = int(sys.argv[1])
behind = int(sys.argv[2]) if len(sys.argv) > 2 else 0
H = b"Host: localhost\r\n"
SMUGGLED = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
HIDDEN = b"POST /v1/locks/smuggled/leases HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n{\"ttlMs\":60000}"
if behind:
    SMUGGLED = HIDDEN


def send(data, timeout=4, to=port):
    s = socket.create_connection(("127.0.0.1", to), timeout=timeout)
    s.sendall(data)
    answer = b""
    try:
        while True:
            more = s.recv(65536)
            if not more:
                break
            answer += more
    except (socket.timeout, ConnectionResetError):
        pass
    s.close()
    return answer


def is_free():
    answer = send(b"GET /v1/locks/smuggled HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", to=behind)
    return b'"free":true' in answer


def not_smuggled(name, data):
    answer = send(data, 0.5)
    result(is_free(), name, repr(answer[:300]))


def refused(name, data, *statuses):
    if behind:
        not_smuggled(name, data)
        return
    answer = send(data)
    record_raw(answer)
    status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
    once = answer.count(b"HTTP/1.1 ") == 1
    result(status in (statuses or (400,)) and once and b"problem+json" in answer, name, repr(answer[:300]))


def line(text):
    return text + b"\r\n" + H + b"\r\n" + SMUGGLED


def field(text, body=b""):
    return b"POST /v1/locks/strict/leases HTTP/1.1\r\n" + H + text + b"\r\n\r\n" + body + SMUGGLED


refused("no method", line(b" / HTTP/1.1"))
refused("a method with a control character", line(b"GE\x01T / HTTP/1.1"))
refused("a method with a blank before it", line(b" GET / HTTP/1.1"))
refused("small letters as a method", line(b"get / HTTP/1.1"))
refused("an empty line first", b"\r\n" + line(b"GET / HTTP/1.1"))
refused("two blanks before the target", line(b"GET  / HTTP/1.1"))
refused("two blanks before the version", line(b"GET /  HTTP/1.1"))
refused("a tab in the request line", line(b"GET\t/ HTTP/1.1"))
refused("a blank behind the version", line(b"GET / HTTP/1.1 "))
refused("no version", line(b"GET /"))
refused("HTTP/0.9", line(b"GET / HTTP/0.9"), 505)
refused("HTTP/2.0", line(b"GET / HTTP/2.0"), 505)
refused("HTTP/1.2", line(b"GET / HTTP/1.2"), 505)
refused("HTTP/1.10", line(b"GET / HTTP/1.10"))
refused("http/1.1 in small letters", line(b"GET / http/1.1"))
refused("an absolute target", line(b"GET http://localhost/livez HTTP/1.1"))
refused("a target without a slash", line(b"GET livez HTTP/1.1"))
refused("a target *", line(b"OPTIONS * HTTP/1.1"))
refused("a fragment in the target", line(b"GET /livez#x HTTP/1.1"))
refused("a backslash in the target", line(b"GET /\\livez HTTP/1.1"))
refused("a NUL in the target", line(b"GET /li\x00vez HTTP/1.1"))
refused("bytes above ASCII in the target", line(b"GET /\xc3\xa4 HTTP/1.1"))
refused("DEL in the target", line(b"GET /\x7f HTTP/1.1"))
refused("a bare LF behind the request line", b"GET /livez HTTP/1.1\n" + H + b"\r\n" + SMUGGLED)
refused("bare LF everywhere", b"GET /livez HTTP/1.1\nHost: localhost\n\n" + SMUGGLED)
refused("a bare LF behind a field", b"GET /livez HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n" + SMUGGLED)
refused("a bare LF as the empty line", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\n" + SMUGGLED)
refused("a bare CR in a value", field(b"X: a\rContent-Length: 5"))
refused("a bare CR in the request line", b"GET /livez\r HTTP/1.1\r\n" + H + b"\r\n" + SMUGGLED)
refused("CR CR LF", b"GET /livez HTTP/1.1\r\r\n" + H + b"\r\n" + SMUGGLED)
refused("a folded field", field(b"X: a\r\n b"))
refused("a folded field with a tab", field(b"X: a\r\n\tContent-Length: 5"))
refused("a blank before the colon", field(b"Content-Length : 5", b"12345"))
refused("a tab before the colon", field(b"Content-Length\t: 5", b"12345"))
refused("a blank before the first field", b"GET /livez HTTP/1.1\r\n " + H + b"\r\n" + SMUGGLED)
refused("a field without a colon", field(b"Content-Length 5"))
refused("a field without a name", field(b": 5"))
refused("a name with a blank", field(b"Content Length: 5"))
refused("a name with a NUL", field(b"X\x00: 5"))
refused("a value with a NUL", field(b"X: \x005"))
refused("a value with a control character", field(b"X: \x0b5"))
refused("a name in brackets", field(b"[X]: 5"))
refused("a name with a byte above ASCII", field(b"X\xa0: 5"))
refused("no Host", b"GET /livez HTTP/1.1\r\n\r\n" + SMUGGLED)
refused("two Hosts", b"GET /livez HTTP/1.1\r\n" + H + b"Host: other\r\n\r\n" + SMUGGLED)
refused("two equal Hosts", b"GET /livez HTTP/1.1\r\n" + H + H + b"\r\n" + SMUGGLED)
refused("an empty Host", b"GET /livez HTTP/1.1\r\nHost:\r\n\r\n" + SMUGGLED)
refused("a Host with a path", b"GET /livez HTTP/1.1\r\nHost: localhost/x\r\n\r\n" + SMUGGLED)
refused("a Host with a user", b"GET /livez HTTP/1.1\r\nHost: a@localhost\r\n\r\n" + SMUGGLED)
refused("a Host with a blank", b"GET /livez HTTP/1.1\r\nHost: localhost x\r\n\r\n" + SMUGGLED)
for value in (b"-1", b"+5", b"0x5", b"5 5", b"5,5", b"5, 5", b"", b"5.0", b"5e0", b"five", b"5;x", b"\xd9\xa5",
              b"99999999999999999999999", b"18446744073709551621"):
    refused("Content-Length: %r" % value, field(b"Content-Length: " + value, b"12345"))
refused("two Content-Lengths", field(b"Content-Length: 5\r\nContent-Length: 6", b"12345"))
refused("two equal Content-Lengths", field(b"Content-Length: 5\r\nContent-Length: 5", b"12345"))
refused("two Content-Lengths in two spellings", field(b"Content-Length: 5\r\ncontent-length: 5", b"12345"))
CHUNKS = b"0\r\n\r\n"
for value in (b"chunked", b"Chunked", b"chunked, chunked", b"gzip, chunked", b"identity", b"xchunked", b"chunked ",
              b"\tchunked", b"", b'"chunked"', b"chunked;q=1"):
    refused("Transfer-Encoding: %r" % value, field(b"Transfer-Encoding: " + value, CHUNKS), 411)
refused("Content-Length and Transfer-Encoding", field(b"Content-Length: 5\r\nTransfer-Encoding: chunked", CHUNKS), 411)
refused("Transfer-Encoding and Content-Length", field(b"Transfer-Encoding: chunked\r\nContent-Length: 5", CHUNKS), 411)
refused("two Transfer-Encodings", field(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x", CHUNKS), 411)
refused("Transfer-Encoding with a blank before the colon", field(b"Transfer-Encoding : chunked", CHUNKS))
refused("Transfer_Encoding, which some take for the other", field(b"Transfer_Encoding: chunked", CHUNKS))
refused("Content_Length", field(b"Content_Length: 5", b"12345"))
refused("another expectation", field(b"Expect: 200-ok\r\nContent-Length: 2", b"{}"), 417)
refused("two Authorizations", field(b"Authorization: Bearer a\r\nAuthorization: Bearer b"))
refused("two Idempotency-Keys", field(b"Idempotency-Key: a\r\nIdempotency-Key: b"))
refused("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
refused("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, 505)
refused("a head that is too long", b"GET /livez HTTP/1.1\r\n" + H + b"".join(b"X-%d: %s\r\n" % (i, b"a" * 1000) for i in range(20)) + b"\r\n", 431)
refused("too many fields", b"GET /livez HTTP/1.1\r\n" + H + b"".join(b"X-%d: a\r\n" % i for i in range(80)) + b"\r\n", 431)
refused("a target that is too long", b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n" + H + b"\r\n", 414)
refused("a request line without an end", b"GET /" + b"a" * 20000, 414)
refused("a body that is too long", field(b"Content-Length: 100000"), 413)

if behind:
    # What these vectors hide would be noticed: sent by itself, it takes the lock.
    result(b" 403 " in send(HIDDEN, 1), "the proxy denies what it sees of it")
    send(HIDDEN, 1, behind)
    result(not is_free(), "past the proxy it would have been taken")
    plan()
    sys.exit()

# What is right goes through, also in pieces, pipelined, and with an old version.
answer = send(SMUGGLED * 3 + b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
result(answer.count(b"HTTP/1.1 200") == 4, "four requests in one piece get four answers", repr(answer[:300]))
s = socket.create_connection(("127.0.0.1", port), timeout=4)
for byte in b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n":
    s.sendall(bytes([byte]))
answer = b""
while more := s.recv(4096):
    answer += more
result(answer.startswith(b"HTTP/1.1 200"), "a request byte by byte is understood", repr(answer[:200]))
answer = send(b"GET /livez HTTP/1.0\r\n\r\n")
result(answer.startswith(b"HTTP/1.1 200") and b"Connection: close" in answer, "HTTP/1.0 is answered and closed", repr(answer[:200]))
answer = send(b"POST /v1/locks/expects/leases HTTP/1.1\r\n" + H + b"Expect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n", 1)
result(answer.startswith(b"HTTP/1.1 100 "), "who expects it is told to go on", repr(answer[:200]))
# A client that is slow to read: most answers do not fit into the socket at once.
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.settimeout(10)
s.connect(("127.0.0.1", port))
DOCUMENT = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n"
s.sendall((DOCUMENT + b"\r\n") * 199 + DOCUMENT + b"Connection: close\r\n\r\n")
answer = b""
while more := s.recv(3000):
    answer += more
result(answer.count(b"HTTP/1.1 200 OK") == 200 and answer.count(b'"openapi":"3.1.0"') == 200, "200 long answers reach a slow reader whole", len(answer))
answer = send(b"HEAD /livez HTTP/1.1\r\n" + H + b"Connection: close\r\n\r\n")
result(answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"\r\n\r\n"), "HEAD has no body", repr(answer[:300]))
plan()
