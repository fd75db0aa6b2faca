# awk -v out=folder -f page_code.awk page.md…: writes each block of C++ on the pages to a file, the
# second one of tutorial.md to folder/tutorial_2.inc. Compiler errors name the page.
FNR == 1 {
  page = FILENAME
  sub(/.*\//, "", page)
  sub(/\.md$/, "", page)
  count = 0
}

/^```cpp/ {
  file = out "/" page "_" ++count ".inc"
  printf "#line %d \"%s\"\n", FNR + 1, FILENAME > file
  next
}
/^```/ {
  if (file) close(file)
  file = ""
  next
}
file { print > file }
