# awk -f type_names.awk file…: is every type at namespace scope defined only once? The linker takes two
# types of one name for one, and keeps the inline functions of either. This reads what .clang-format
# makes of a file: a declaration at namespace scope begins at the left margin. A type in an unnamed
# namespace belongs to its file and does not count.

function enter(name) {
  scopes[++depth] = name
  opened[depth] = FNR
  if (name == "") ++unnamed
}
function leave() {
  if (scopes[depth--] == "") --unnamed
}

function defined(name,    scope, i) {
  if (unnamed) return
  for (i = 1; i <= depth; ++i) scope = scope scopes[i] "::"
  name = scope name
  ++types
  if (name in where) {
    printf "%s: %s:%d and %s\n", name, FILENAME, FNR, where[name]
    ++twice
  }
  where[name] = FILENAME ":" FNR
}

FNR == 1 {
  if (depth) {
    printf "%s ends inside a namespace\n", previous
    ++twice
  }
  depth = unnamed = 0
  head = ""
  previous = FILENAME
}

/^namespace( [A-Za-z0-9_:]+)? \{$/ {
  enter($2 == "{" ? "" : $2)
  next
}
# clang-format puts no comment at the end of a namespace with a single line.
/^\}  \/\/ namespace/ || (/^\}$/ && depth && FNR == opened[depth] + 2) {
  leave()
  next
}

# A definition may take several lines up to its brace; a declaration ends in a semicolon. What follows
# the name is `final`, the bases, or the arguments of a specialisation, which is part of the name.
/^(class|struct|union|enum class|enum) / { head = "" }
/^(class|struct|union|enum class|enum) / || head != "" {
  head = head $0 " "
  if ($0 !~ /[{;]/) next
  if (match(head, /^[^;]*\{/)) {
    name = head
    sub(/ *\{.*/, "", name)
    sub(/^(class|struct|union|enum class|enum) +/, "", name)
    sub(/( final)?( :[^:].*)?$/, "", name)
    gsub(/(alignas\([^)]*\)|\[\[[^]]*\]\]) */, "", name)
    defined(name)
  }
  head = ""
}
/^using [A-Za-z0-9_]+ =/ { defined($2) }

END {
  printf "%d types, %d of them defined twice\n", types, twice
  exit twice > 0 || types < 500
}
