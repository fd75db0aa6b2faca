# Links to a section of a page become links to the page, or plain text: Doxygen numbers the sections
# and does not know them by their headings.
{
  while (match($0, /\]\(#[a-z0-9-]*\)/)) {
    before = substr($0, 1, RSTART - 1)
    after = substr($0, RSTART + RLENGTH)
    open = match(before, /\[[^\[]*$/)
    $0 = substr(before, 1, open - 1) substr(before, open + 1) after
  }
  gsub(/\.md#[a-z0-9-]*\)/, ".md)")
  print
}
