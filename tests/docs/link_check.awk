# awk -f link_check.awk page.md…: run at the root of the source tree. Does every relative link
# lead to a file, and every `#section` to a heading of that page, spelled as GitHub spells it?

function anchor_of(heading) {
  sub(/^#+ */, "", heading)
  gsub(/`/, "", heading)
  heading = tolower(heading)
  gsub(/[^a-z0-9 _-]/, "", heading)
  gsub(/ /, "-", heading)
  return heading
}

# The headings of a page, read once.
function read_anchors(page,    line, fenced) {
  if (page in known) return
  known[page] = 1
  while ((getline line < page) > 0) {
    if (line ~ /^```/) fenced = !fenced
    if (!fenced && line ~ /^#/) anchors[page, anchor_of(line)] = 1
  }
  close(page)
}

function exists(path,    line, found) {
  if (path in seen) return seen[path]
  found = system("test -e '" path "'") == 0
  return seen[path] = found
}

function complain(link) {
  printf "%s:%d: %s\n", FILENAME, FNR, link
  ++broken
}

function check(link,    folder, path, section) {
  if (link ~ /^[a-z]+:/) return
  ++links
  section = link
  if (!sub(/.*#/, "", section)) section = ""
  path = link
  sub(/#.*/, "", path)
  folder = FILENAME
  if (!sub(/\/[^\/]*$/, "/", folder)) folder = ""
  path = path == "" ? FILENAME : folder path
  if (path ~ /'/ || !exists(path)) {
    complain(link)
  } else if (section != "" && path ~ /\.md$/) {
    read_anchors(path)
    if (!((path, section) in anchors)) complain(link)
  }
}

FNR == 1 { fenced = 0 }
/^```/ { fenced = !fenced }
!fenced {
  rest = $0
  gsub(/`[^`]*`/, "code", rest)
  while (match(rest, /\]\([^) ]+\)/)) {
    check(substr(rest, RSTART + 2, RLENGTH - 3))
    rest = substr(rest, RSTART + RLENGTH)
  }
}

END {
  printf "%d links, %d of them broken\n", links, broken
  exit broken > 0 || links < 50
}
