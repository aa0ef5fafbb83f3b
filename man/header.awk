# header.awk - reads include/holdfast.h and prints a part of it for a man page.
#
#     awk -v want=synopsis -v names="hf_open hf_close" -f header.awk holdfast.h    their declarations
#     awk -v want=describe -v names="hf_open hf_close" -f header.awk holdfast.h    what the header says of them, as scdoc
#
# The header is read by paragraphs: a comment on top of one speaks of all that is declared in it, one behind a
# declaration of that alone.
BEGIN {
    RS = ""
    count = split(names, list, " ")
    for (i = 1; i <= count; i++)
        wanted[list[i]] = i
}

# Statements and comments of a paragraph, in kinds[] and texts[].
function split_paragraph(text,    end, head) {
    parts = 0
    while (text != "") {
        sub(/^[ \t\n]+/, "", text)
        if (substr(text, 1, 2) == "/*") {
            end = index(text, "*/")
            head = substr(text, 3, end - 3)
            kinds[++parts] = "comment"
            text = substr(text, end + 2)
        } else if (text ~ /^[#}]/ || text ~ /^extern "C"/) {
            end = index(text, "\n")
            if (end == 0)
                return
            text = substr(text, end + 1)
            continue
        } else {
            end = statement_end(text)
            if (end == 0)
                return
            head = substr(text, 1, end)
            kinds[++parts] = "statement"
            text = substr(text, end + 1)
        }
        gsub(/[ \t]*\n[ \t]*(\* )?/, " ", head)
        gsub(/^ +| +$/, "", head)
        texts[parts] = head
    }
}

# The place of the semicolon that ends the first statement; braces and the comments in them are stepped over.
function statement_end(text,    i, depth, two) {
    for (i = 1; i <= length(text); i++) {
        two = substr(text, i, 2)
        if (two == "/*") {
            i += index(substr(text, i), "*/")
        } else if (two ~ /^[{]/) {
            depth++
        } else if (two ~ /^[}]/) {
            depth--
        } else if (two ~ /^;/ && depth == 0) {
            return i
        }
    }
    return 0
}

function function_name(statement) {
    if (statement !~ /^HF_API/ || !match(statement, /hf_[a-z0-9_]+ *\(/))
        return ""
    statement = substr(statement, RSTART, RLENGTH)
    sub(/ *\($/, "", statement)
    return statement
}

# A declaration without our macros, folded behind a comma.
function declaration(statement,    line, words, n, i, out) {
    gsub(/HF_API |HF_MUST_CHECK /, "", statement)
    n = split(statement, words, ", ")
    line = words[1]
    for (i = 2; i <= n; i++) {
        if (length(line) + length(words[i]) > 72) {
            out = out line ",\n"
            line = "    " words[i]
        } else {
            line = line ", " words[i]
        }
    }
    return out line
}

function escaped(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/[*_#<]/, "\\\\&", text)
    return text
}

# Text of a comment as scdoc: names of the library are bold, the rest is plain.
function prose(text,    words, n, i, out) {
    n = split(text, words, " ")
    for (i = 1; i <= n; i++) {
        if (match(words[i], /`[a-z_]+`/))
            words[i] = escaped(substr(words[i], 1, RSTART - 1)) "_" substr(words[i], RSTART + 1, RLENGTH - 2) "_" \
                escaped(substr(words[i], RSTART + RLENGTH))
        else if (match(words[i], /(hf|HF)_[A-Za-z_]*[A-Za-z]/))
            words[i] = escaped(substr(words[i], 1, RSTART - 1)) "*" substr(words[i], RSTART, RLENGTH) "*" \
                escaped(substr(words[i], RSTART + RLENGTH))
        else
            words[i] = escaped(words[i])
        out = out (i > 1 ? " " : "") words[i]
    }
    return out
}

# A remark behind a declaration may begin with a small letter; as a sentence of its own it does not.
function sentence(text) {
    text = prose(text)
    if (text ~ /^[a-z]/)
        text = toupper(substr(text, 1, 1)) substr(text, 2)
    return text ~ /[.?!]$/ ? text : text "."
}

function print_description(    i, name, heads, texts_out, top) {
    heads = texts_out = top = ""
    for (i = 1; i <= parts; i++) {
        name = kinds[i] == "statement" ? function_name(texts[i]) : ""
        if (i == 1 && kinds[i] == "comment") {
            top = prose(texts[i])
        } else if (name != "" && name in wanted) {
            if (kinds[i + 1] == "comment" && i < parts && top == "") {
                printf "*%s*()\n\t%s\n\n", name, sentence(texts[i + 1])
            } else {
                heads = heads (heads == "" ? "" : ", ") "*" name "*()"
                if (i < parts && kinds[i + 1] == "comment")
                    texts_out = texts_out " *" name "*(): " prose(texts[i + 1]) "."
            }
        }
    }
    if (heads != "")
        printf "%s\n\t%s%s\n\n", heads, top, texts_out
}

{
    split_paragraph($0)
    hit = 0
    for (i = 1; i <= parts; i++) {
        name = kinds[i] == "statement" ? function_name(texts[i]) : ""
        if (name != "" && name in wanted) {
            hit = 1
            found[name] = 1
        }
    }
    if (!hit)
        next
    if (want == "describe") {
        print_description()
        next
    }
    for (i = 1; i <= parts; i++) {
        name = kinds[i] == "statement" ? function_name(texts[i]) : ""
        if (kinds[i] == "statement" && (name in wanted || texts[i] ~ /^typedef [a-z]+ hf_[a-z_]+_fn\(/))
            print declaration(texts[i])
    }
    print ""
}

END {
    for (i = 1; i <= count; i++)
        if (!(list[i] in found)) {
            printf "header.awk: %s is not declared in the header\n", list[i] >"/dev/stderr"
            exit 1
        }
}
