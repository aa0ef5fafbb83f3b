# binding.gyp - builds the addon where the tarball has no binary for the platform: scripts/build-npm lays src/ and vendor/ beside it.
# It stands in a folder of its own, because npm would build at every installation if it stood in the package's.
{
  "targets": [{
    "target_name": "holdfast",
    "sources": ["<!@(find src vendor/src -name '*.c')"],
    "include_dirs": ["vendor/include", "vendor/src", "<!@(find vendor/src -type d)"],
    "defines": ["_GNU_SOURCE"],
    "cflags_c": ["-std=c17", "-fvisibility=hidden", "-Wno-missing-field-initializers", "-Wno-unused-parameter", "-Wno-sign-compare"],
    "libraries": ["-lhiredis"]
  }]
}
