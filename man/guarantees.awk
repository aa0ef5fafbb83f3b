# guarantees.awk - turns docs/guarantees.md into scdoc for holdfast-guarantees(7).
BEGIN {
    print "holdfast-guarantees(7)\n\n# NAME\n\nholdfast-guarantees - what Holdfast promises, and what it does not\n\n# DESCRIPTION"
}

# Literal stars and underscores stay what they are; `code` and **strong** become bold, *emphasis* underlined.
function text(line) {
    gsub(/\\/, "\\\\", line)
    gsub(/_/, "\\_", line)
    gsub(/\*\*/, "\001", line)
    gsub(/\*/, "_", line)
    gsub(/\001/, "*", line)
    gsub(/`/, "*", line)
    return line
}

/^# / { next }
/^## / { print "# " toupper(substr($0, 4)); next }
/^### / { print "## " text(substr($0, 5)); next }
# A table becomes a list: what it is about, then each column with its title.
/^\|-/ { next }
/^\| / {
    n = split($0, cell, / *\| */)
    if (!columns) {
        columns = n
        for (i = 3; i < n; i++)
            title[i] = text(cell[i])
        next
    }
    line = "- *" text(cell[2]) "*:"
    for (i = 3; i < n; i++)
        line = line " " title[i] " " text(cell[i]) (i < n - 1 ? ";" : "")
    print line
    next
}
{ columns = 0; print text($0) }
END { print "\n# SEE ALSO\n\n*holdfast*(1), *libholdfast*(3)" }
