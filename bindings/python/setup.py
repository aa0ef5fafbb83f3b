"""setup.py - the extension of the package: one binary for CPython 3.9 and newer (stable ABI).

The library is compiled into it from vendor/, which scripts/build-wheel lays down. With
HOLDFAST_LINK=shared the extension is linked to libholdfast.so instead: CFLAGS and LDFLAGS say where
that is. Debian's package is built so."""
import glob
import os
import re
import sys

from setuptools import Extension, setup

HERE = os.path.dirname(os.path.abspath(__file__))
VENDOR = os.path.join(HERE, "vendor")
LIMITED = "cp39"


def sources(*pattern):
    return sorted(os.path.relpath(path, HERE) for path in glob.glob(os.path.join(HERE, *pattern), recursive=True))


def version():
    for folder in (VENDOR, os.path.join(HERE, "..", "..")):
        header = os.path.join(folder, "include", "holdfast.h")
        if os.path.exists(header):
            with open(header) as text:
                return ".".join(re.findall(r"#define HF_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", text.read()))
    sys.exit("setup.py: include/holdfast.h is missing: build the package with scripts/build-wheel")


def hiredis():
    """The archive where there is one: a wheel then needs no package of hiredis."""
    for folder in sorted(glob.glob("/usr/lib/*-linux-gnu")) + ["/usr/lib64", "/usr/lib", "/usr/local/lib"]:
        archive = os.path.join(folder, "libhiredis.a")
        if os.path.exists(archive):
            return {"extra_objects": [archive], "libraries": ["ssl", "crypto", "m"]}
    return {"libraries": ["hiredis", "ssl", "crypto", "m"]}


def vendored():
    # A header's name occurs once in the tree, so every folder may be searched.
    folders = {os.path.dirname(path) for path in sources("vendor", "src", "**", "*.[ch]")}
    return {
        "sources": sources("src", "*.c") + sources("vendor", "**", "*.c"),
        "include_dirs": ["vendor/include", "vendor/src", *sorted(folders)],
        "depends": sources("vendor", "**", "*.h") + sources("vendor", "**", "*.def"),
        **hiredis(),
    }


def shared():
    return {"sources": sources("src", "*.c"), "libraries": ["holdfast", "m"]}


if os.environ.get("HOLDFAST_LINK") == "shared":
    build = shared()
elif os.path.isdir(VENDOR):
    build = vendored()
else:
    sys.exit("setup.py: vendor/ is missing: build the package with scripts/build-wheel, or set HOLDFAST_LINK=shared")

setup(
    version=version(),
    ext_modules=[Extension(
        "holdfast._holdfast",
        define_macros=[("_GNU_SOURCE", None)],
        # Asserts stay: a broken invariant must not become a second holder.
        undef_macros=["NDEBUG"],
        extra_compile_args=["-std=c17", "-fvisibility=hidden"],
        extra_link_args=["-Wl,--version-script=src/exports.map"],
        py_limited_api=True,
        **build,
    )],
    options={"bdist_wheel": {"py_limited_api": LIMITED}},
)
