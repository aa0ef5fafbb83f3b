#!/usr/bin/env python3
"""openapi_match.py - compares recorded answers of the service with its OpenAPI document.

Usage: openapi_match.py DOCUMENT ANSWERS. Prints what is wrong, a line each, and how many answers of which operations were compared;
exits with 1 if anything is. A member, a status or a media type that the document does not have is wrong. So is an example in
the document that does not fit its own schema."""
import collections
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from json_valid import Schema  # noqa: E402


class Document(Schema):
    """The schemas of a document. They are made of docs/json-schema.json, so both files are tested here."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.all = json.load(file)
        self.definitions = self.all["components"]["schemas"]
        self.routes = [(re.compile("^" + re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)) + "$"), methods)
                       for path, methods in self.all["paths"].items()]

    def operation(self, method, path):
        for pattern, methods in self.routes:
            if pattern.match(path.split("?")[0]) and method.lower() in methods:
                return methods[method.lower()]
        return None

    def content(self, operation, status):
        """What the answer may contain; None if the document does not have that status."""
        if operation is None:
            return {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}} if status >= 400 else None
        responses = operation["responses"]
        found = responses.get(str(status)) or (responses.get("default") if status >= 400 else None)
        return None if found is None else found.get("content", {})

    def answer_errors(self, method, path, status, kind, body):
        where = f"{method} {path.split('?')[0]} {status}"
        content = self.content(self.operation(method, path), status)
        kind = kind.split(";")[0].strip()
        if content is None:
            yield f"{where}: the document does not have that status"
        elif not content:
            if body:
                yield f"{where}: has a body, and should have none"
        elif "*/*" not in content and kind not in content:
            yield f"{where}: is {kind or 'empty'}, not {' or '.join(content)}"
        elif kind.endswith("json") and body:
            value = json.loads(body)
            yield from self.errors(content.get(kind, {}).get("schema", {}), value, where)
            if kind == "application/problem+json" and value.get("status") != status:
                yield f"{where}: says that it is {value.get('status')}"

    def own_errors(self):
        """Examples that do not fit, and parts without description or example."""
        yield from super().own_errors()
        for name, part in self.definitions.items():
            if "description" not in part or "properties" in part and "examples" not in part:
                yield f"{name}: has no example or no description"
        tags = {tag["name"] for tag in self.all["tags"]}
        for path, methods in self.all["paths"].items():
            for method, operation in methods.items():
                if not set(operation["tags"]) <= tags or not operation["summary"]:
                    yield f"{method} {path}: has no summary or an unknown tag"
                for parameter in operation["parameters"]:
                    if "description" not in parameter or "example" not in parameter:
                        yield f"{method} {path}: {parameter['name']} is not described"


def recorded(path):
    with open(path, "rb") as file:
        for each in file.read().split(b"\0")[:-1]:
            method, target, status, kind, body = each.decode("utf-8", "replace").split("\n", 4)
            yield method, target, int(status), kind, body


def main():
    document = Document(sys.argv[1])
    wrong, seen = list(document.own_errors()), collections.Counter()
    for answer in recorded(sys.argv[2]):
        seen[(document.operation(*answer[:2]) or {}).get("operationId", "no route")] += 1
        wrong += document.answer_errors(*answer)
    wrong = list(dict.fromkeys(wrong))
    print("\n".join(wrong[:30]), end="\n" if wrong else "")
    print(f"# {sum(seen.values())} answers: " + ", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
