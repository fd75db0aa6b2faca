# awk -f guide_check.awk guide_snippets.cpp… page.md…: is each piece of C++ on the pages in the
# snippets, which are compiled? Blanks do not count. A piece is a block marked cpp, a code span that
# ends in ";" or begins with "{.", and in a table's column "C++" also one that calls something.

function squeezed(text) {
  gsub(/[ \t\n]/, "", text)
  return text
}

function check(piece) {
  ++pieces
  if (index(code, squeezed(piece))) return
  printf "%s:%d: not in the snippets: %s\n", FILENAME, FNR, piece
  ++missing
}

function check_spans(text, in_column,    parts, i) {
  split(text, parts, "`")
  for (i = 2; i in parts; i += 2) {
    if (parts[i] ~ /;$|^\{\./ || (in_column && parts[i] ~ /\(/)) check(parts[i])
  }
}

FILENAME ~ /\.cpp$/ {
  code = code squeezed($0)
  next
}

/^```/ {
  if (fenced && language == "cpp") check(block)
  fenced = !fenced
  language = substr($0, 4)
  block = ""
  next
}
fenced {
  block = block $0
  next
}

/^\|/ {
  cells = split($0, cell, / \| /)
  last = cell[cells]
  sub(/ *\|$/, "", last)
  if (!in_table) cpp_column = last ~ /(^|\| )C\+\+$/
  else if (cpp_column) check_spans(last, 1)
  in_table = 1
  next
}
{
  in_table = 0
  check_spans($0, 0)
}

END {
  printf "%d pieces of C++, %d of them not in the snippets\n", pieces, missing
  exit missing > 0 || pieces < 80
}
