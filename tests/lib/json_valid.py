#!/usr/bin/env python3
"""json_valid.py - checks JSON against a definition of docs/json-schema.json, or the tables of docs/json.md against all.

Usage: json_valid.py SCHEMA DEFINITION     reads JSON values from stdin; an array stands for its items
       json_valid.py SCHEMA --tables PAGE  compares the tables of PAGE with the definitions

Prints what is wrong, a line each, and exits with 1. Knows the part of JSON Schema that the file uses, and refuses any other word.
A key that is not in the schema is wrong, also where readers must ignore it: what is printed must be documented.
"""
import json
import re
import sys

WORDS = {"$ref", "$defs", "$schema", "title", "description", "type", "enum", "anyOf", "allOf", "properties", "required",
         "additionalProperties", "items", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
         "default", "examples"}
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict,
         "null": type(None)}


def has_type(value, name):
    if isinstance(value, bool) and name != "boolean":
        return False
    return isinstance(value, TYPES[name])


class Schema:
    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.all = json.load(file)
        self.definitions = self.all["$defs"]

    def resolve(self, part):
        while "$ref" in part:
            place = self.all
            for step in part["$ref"].removeprefix("#/").split("/"):
                place = place[step]
            part = place
        return part

    def properties(self, part):
        """The properties of an object: its own, and those of all schemas that it must fit as well."""
        part = self.resolve(part)
        found = {}
        for one in part.get("allOf", []):
            found.update(self.properties(one))
        return {**found, **part.get("properties", {})}

    def errors(self, part, value, where, known=None):
        """Everything that is wrong with a value, as texts. `known`: keys that it may have besides those of this part."""
        part = self.resolve(part)
        unknown = set(part) - WORDS
        if unknown:
            yield f"{where}: the schema uses {sorted(unknown)}, which this check does not know"
        if "anyOf" in part and all(list(self.errors(one, value, where)) for one in part["anyOf"]):
            yield f"{where}: {json.dumps(value)} fits none of {json.dumps(part['anyOf'])}"
        if "type" in part and not has_type(value, part["type"]):
            yield f"{where}: {json.dumps(value)} is not of type {part['type']}"
            return
        if "enum" in part and value not in part["enum"]:
            yield f"{where}: {json.dumps(value)} is not one of {part['enum']}"
        if "pattern" in part and not re.search(part["pattern"], value):
            yield f"{where}: {json.dumps(value)} does not match {part['pattern']}"
        yield from self.size_errors(part, value, where)
        known = {**(known or {}), **self.properties(part)}
        for one in part.get("allOf", []):
            yield from self.errors(one, value, where, known)
        if isinstance(value, dict) and "anyOf" not in part:
            yield from self.object_errors(part, value, where, known)
        if isinstance(value, list) and "items" in part:
            for i, item in enumerate(value):
                yield from self.errors(part["items"], item, f"{where}[{i}]")

    def size_errors(self, part, value, where):
        if "minimum" in part and value < part["minimum"]:
            yield f"{where}: {value} is less than {part['minimum']}"
        if "maximum" in part and value > part["maximum"]:
            yield f"{where}: {value} is more than {part['maximum']}"
        least, most = {str: ("minLength", "maxLength"), list: ("minItems", "maxItems")}.get(type(value), ("", ""))
        if least and not part.get(least, 0) <= len(value) <= part.get(most, len(value)):
            yield f"{where}: the length {len(value)} is out of bounds"

    def object_errors(self, part, value, where, known):
        for key in part.get("required", []):
            if key not in value:
                yield f"{where}: {key} is missing"
        for key, item in value.items():
            if key in part.get("properties", {}):
                yield from self.errors(part["properties"][key], item, f"{where}.{key}")
            elif known and key not in known:
                yield f"{where}: {key} is not documented"

    def own_errors(self):
        """Examples that do not fit their definition, and properties without a description."""
        for name, part in self.definitions.items():
            for example in part.get("examples", []):
                yield from self.errors(part, example, f"example of {name}")
            for member, inner in part.get("properties", {}).items():
                if "$ref" not in inner and "description" not in inner:
                    yield f"{name}.{member}: has no description"


def values(text):
    """The JSON values of a text, one after the other; an array stands for its items."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        value, end = decoder.raw_decode(text, at)
        at = end
        yield from value if isinstance(value, list) else [value]


def check_values(schema, name):
    count = 0
    for count, value in enumerate(values(sys.stdin.read()), 1):
        yield from schema.errors(schema.definitions[name], value, name)
    if count == 0:
        yield "there is nothing to check"


def written_type(schema, part):
    """A property's type as the tables write it: "number?"."""
    part = schema.resolve(part)
    if "anyOf" in part:
        return written_type(schema, part["anyOf"][0]) + "?"
    name = part.get("type", "string")
    return "number" if name == "integer" else name


def tables(page):
    with open(page, encoding="utf-8") as file:
        for section in re.split(r"(?m)^## ", file.read())[1:]:
            title = section.split("\n", 1)[0]
            rows = re.findall(r"(?m)^\| (\w+) \| (\w+\??) \| .* \|$", section)
            yield title, {key: kind for key, kind in rows if kind.rstrip("?") in TYPES or kind.rstrip("?") == "number"}


def check_tables(schema, page):
    titled = {part["title"]: part for part in schema.definitions.values() if "properties" in part and "title" in part}
    seen = set()
    for title, wanted in tables(page):
        if not wanted:
            continue
        seen.add(title)
        if title not in titled:
            yield f"{title}: the schema has no definition of that title"
            continue
        found = {key: written_type(schema, part) for key, part in titled[title]["properties"].items()}
        for key in sorted(set(wanted) | set(found)):
            if wanted.get(key) != found.get(key):
                yield f"{title}: {key} is {wanted.get(key)} in the page, {found.get(key)} in the schema"
    for title in sorted(set(titled) - seen):
        yield f"{title}: the page has no table for it"


def main():
    schema = Schema(sys.argv[1])
    wrong = check_tables(schema, sys.argv[3]) if sys.argv[2] == "--tables" else check_values(schema, sys.argv[2])
    wrong = list(dict.fromkeys([*schema.own_errors(), *wrong]))
    print("\n".join(wrong[:20]), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
