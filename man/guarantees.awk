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
{ print text($0) }
END { print "\n# SEE ALSO\n\n*holdfast*(1), *libholdfast*(3)" }
