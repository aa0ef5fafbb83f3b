# draw-terminals.awk - draws what happened on terminals as an animated SVG.
#
# Input: lines of "terminal, milliseconds, bytes in hexadecimal", one terminal after the other. Understands carriage
# return, line feed, backspace, erase to the end of the line, and the colours that the command uses. Where nothing moves,
# on paper or for people who want it so, the picture shows the moment in which somebody waits.
BEGIN {
    ROWS = 8
    LINE = 18
    LEFT = 16
    WIDTH = 790
    HEAD = 34
    HIGH = HEAD + ROWS * LINE + 12
    for (i = 0; i < 256; i++)
        byte[sprintf("%02x", i)] = i
    STYLE["1"] = "bold"
    STYLE["2"] = "dim"
    STYLE["31"] = "red"
    STYLE["32"] = "green"
    STYLE["33"] = "yellow"
    STYLE["36"] = "cyan"
}

function open_terminal(name) {
    terminal[++terminals] = name
    row = 1
    column = 1
    style = ""
    escape = ""
}

function put(value,    last) {
    if (value >= 128 && value < 192) {
        last = row SUBSEP (column - 1)
        cell[terminals, last] = cell[terminals, last] sprintf("%c", value)
        return
    }
    cell[terminals, row, column] = sprintf("%c", value)
    worn[terminals, row, column] = style
    if (++column > used[terminals, row] + 1)
        used[terminals, row] = column - 1
    dirty[row] = 1
}

function erase_to_end(    c) {
    for (c = column; c <= used[terminals, row]; c++)
        delete cell[terminals, row, c]
    if (used[terminals, row] >= column)
        used[terminals, row] = column - 1
    dirty[row] = 1
}

# Handles the end of a control sequence: K erases, m sets the colour, others change nothing that is
# seen here.
function control(sequence,    kind, codes, n, i) {
    kind = substr(sequence, length(sequence))
    if (kind == "K")
        erase_to_end()
    if (kind != "m")
        return
    n = split(substr(sequence, 3, length(sequence) - 3), codes, ";")
    style = n == 0 ? "" : style
    for (i = 1; i <= n; i++)
        style = codes[i] in STYLE ? STYLE[codes[i]] : ""
}

function feed(value,    c) {
    c = sprintf("%c", value)
    if (escape != "") {
        escape = escape c
        if (c ~ /[A-Za-z]/) {
            control(escape)
            escape = ""
        }
    } else if (value == 27) {
        escape = c
    } else if (value == 13) {
        column = 1
    } else if (value == 10) {
        row++
    } else if (value == 8) {
        column -= column > 1
    } else if (value >= 32) {
        put(value)
    }
}

function xml(c) {
    return c == "&" ? "&amp;" : c == "<" ? "&lt;" : c == ">" ? "&gt;" : c == "" ? " " : c
}

# A row as the inside of a <text>.
function drawn(t, r,    c, out, now, was) {
    was = ""
    for (c = 1; c <= used[t, r]; c++) {
        now = worn[t, r, c]
        if (now != was)
            out = out (was != "" ? "</tspan>" : "") (now != "" ? "<tspan class=\"" now "\">" : "")
        out = out xml(cell[t, r, c])
        was = now
    }
    return out (was != "" ? "</tspan>" : "")
}

$1 != terminal[terminals] { open_terminal($1) }
{
    for (i = 1; i < length($3); i += 2)
        feed(byte[substr($3, i, 2)])
    for (r in dirty) {
        states[terminals, r]++
        at[terminals, r, states[terminals, r]] = $2
        text[terminals, r, states[terminals, r]] = drawn(terminals, r)
        if (still == 0 && index(text[terminals, r, states[terminals, r]], "waiting:"))
            still = $2 + 1
        delete dirty[r]
    }
    if ($2 > end)
        end = $2
}

# Draws a state of a row: a <text> that is visible from one moment to the next.
function draw_state(t, r, s,    from, to, x, y) {
    from = at[t, r, s]
    to = s < states[t, r] ? at[t, r, s + 1] : end
    if (text[t, r, s] == "" || to <= from)
        return
    id = "s" ++drawn_states
    frames = frames sprintf("@keyframes %s{0%%{visibility:hidden}%.3f%%{visibility:visible}%s}\n", id, from * 100 / end, \
        to < end ? sprintf("%.3f%%{visibility:hidden}", to * 100 / end) : "")
    x = LEFT
    y = (t - 1) * (HIGH + 12) + HEAD + r * LINE
    body = body sprintf("<text x=\"%d\" y=\"%d\" visibility=\"%s\" style=\"animation-name:%s\">%s</text>\n", x, y, \
        from <= still && still < to ? "visible" : "hidden", id, text[t, r, s])
}

END {
    if (terminals == 0)
        exit 1
    end += 3000
    for (t = 1; t <= terminals; t++) {
        y = (t - 1) * (HIGH + 12)
        body = body sprintf("<rect y=\"%d\" width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#1d2330\"/>\n", y, WIDTH, HIGH)
        body = body sprintf("<text class=\"title\" x=\"%d\" y=\"%d\">terminal %d</text>\n", LEFT, y + 22, t)
        for (r = 1; r <= ROWS; r++)
            for (s = 1; s <= states[t, r]; s++)
                draw_state(t, r, s)
    }
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\">\n", WIDTH, terminals * (HIGH + 12) - 12, WIDTH
    print "<title>Two terminals: the second one waits for the first, says for whom, and takes over</title>"
    print "<style>"
    print "text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#d7dce5;white-space:pre;" \
        "animation-duration:" end "ms;animation-timing-function:step-end;animation-iteration-count:infinite}"
    print ".title{fill:#8a93a5;animation:none}.bold{font-weight:bold;fill:#fff}.dim{fill:#8a93a5}.red{fill:#e06c75}" \
        ".green{fill:#98c379}.yellow{fill:#e5c07b}.cyan{fill:#56b6c2}"
    print "@media (prefers-reduced-motion:reduce){text{animation:none}}"
    printf "%s", frames
    print "</style>"
    printf "%s", body
    print "</svg>"
}
