# tap.py - what the Python scripts beside it print: TAP, a line a test, and the plan at the end.
count = 0


def result(fine, name, detail=""):
    global count
    count += 1
    print("ok" if fine else "not ok", count, "-", name, flush=True)
    if not fine:
        print("#", detail, flush=True)


def plan():
    print("1..%d" % count)
