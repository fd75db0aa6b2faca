# awk -f guide_check.awk guide_*.cpp… page.md… twice=1 page.md… others=1 any.md…: is each piece of
# C++ on the pages compiled? The pages are read twice. Blanks do not count.
# - A block marked cpp must be included by a .cpp file, as page_code.awk names it.
# - The text of other pieces must be in a .cpp file or in a block: a code span that ends in ";" or
#   begins with "{.", and in a table's column "C++" also one that calls something.
# - No other page may have a block of C++.

function squeezed(text) {
  gsub(/[ \t\n]/, "", text)
  return text
}

function check(piece, text) {
  ++pieces
  if (index(code, squeezed(text))) return
  printf "%s:%d: not compiled by tests/docs: %s\n", FILENAME, FNR, piece
  ++missing
}

function check_spans(text, in_column,    parts, i) {
  split(text, parts, "`")
  for (i = 2; i in parts; i += 2) {
    if (parts[i] ~ /;$|^\{\./ || (in_column && parts[i] ~ /\(/)) check(parts[i], parts[i])
  }
}

FILENAME ~ /\.cpp$/ {
  code = code squeezed($0)
  next
}

others {
  if (/^ *```(cpp|c\+\+|cc)/ && !(FILENAME in listed)) {
    printf "%s:%d: C++ on a page that tests/docs/CMakeLists.txt does not list\n", FILENAME, FNR
    ++missing
  }
  next
}

FNR == 1 {
  listed[FILENAME] = 1
  page = FILENAME
  sub(/.*\//, "", page)
  sub(/\.md$/, "", page)
  count = 0
}

/^```/ {
  fenced = !fenced
  is_cpp = fenced && substr($0, 4) == "cpp"
  if (is_cpp && twice) {
    ++count
    check("block " count, "#include \"" page "_" count ".inc\"")
  }
  next
}
fenced {
  if (is_cpp && !twice) code = code squeezed($0)
  next
}
!twice { next }

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
  printf "%d pieces of C++, %d of them not compiled\n", pieces, missing
  exit missing > 0 || pieces < 80
}
