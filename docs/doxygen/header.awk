# Turns the comments of this project's headers into comments for Doxygen. Lines keep their numbers.
# - The comment at the top of a file describes the file, and also the class that the file is named
#   after if that class has no comment.
# - Other `//` paragraphs at the left margin belong to the file as well.
# - A comment belongs to all declarations below it up to the next blank line, such as overloads.
# - The comment at `class X;` is that of X.
# With -v overloads=1, later overloads in the file get the comment too. The check for functions without
# a comment uses this, because one comment for all overloads is enough.

function base_name(path) {
  sub(/.*\//, "", path)
  sub(/\.[a-z]*$/, "", path)
  return path
}

function snake_case(name,    i, c, result) {
  for (i = 1; i <= length(name); ++i) {
    c = substr(name, i, 1)
    result = result (c ~ /[A-Z]/ && i > 1 ? "_" : "") tolower(c)
  }
  return result
}

function text_of(line) {
  sub(/^\/\/\/? ?/, "", line)
  return line
}

# Returns X of "class X {", "class X final : …" or "class X;".
function type_name(line) {
  if (line !~ /^(class|struct) /) return ""
  sub(/^(class|struct) /, "", line)
  sub(/[^A-Za-z0-9_].*/, "", line)
  return line
}

# Returns f of "R f(…". A function begins at the left margin.
function function_name(line) {
  if (line !~ /^[^ ].*[a-z_]\(/ || line ~ /^(using|class|struct|enum|inline constexpr)/) return ""
  sub(/\(.*/, "", line)
  sub(/.*[^A-Za-z0-9_]/, "", line)
  return line
}

function named_after(type) {
  type = snake_case(type)
  return type == file || index(type, file "_") == 1 ||
         substr(type, length(type) - length(file)) == "_" file
}

BEGIN { top = 1 }
NR == 1 { file = base_name(FILENAME) }

# The top of the file ends at `#pragma once`, whose line is used for the end of the comment.
top && /^\/\// {
  about_file = about_file text_of($0) " "
  print NR == 1 ? "/** \\file" : ""
  next
}
top {
  top = 0
  if (about_file != "") {
    print about_file "*/"
    next
  }
}

# A separate paragraph. The blank line before it was held back and is used to open the comment.
/^\/\/( |$)/ {
  if (blank_held) print paragraph ? "" : "/** \\file"
  if (blank_held) paragraph = 1
  blank_held = 0
  print paragraph ? text_of($0) : $0
  next
}
paragraph && /^$/ {
  print "*/"
  paragraph = 0
  next
}

/^$/ {
  if (blank_held) print ""
  blank_held = 1
  own = shared = ""
  next
}
blank_held {
  print ""
  blank_held = 0
}

/^\/\/\// {
  if (inside == 0 && own == "") shared = ""
  own = own text_of($0) " "
  print
  next
}

# The first line of a declaration at the left margin, or the one after `template <…>`.
/^[A-Za-z\[]/ && !inside && !/^namespace/ {
  template = /^template/
  inside = !template
  if (own != "") shared = own
  type = type_name($0)
  name = function_name($0)
  doc = shared
  if (type != "" && shared == "") {
    doc = type in forward ? forward[type] : named_after(type) ? about_file : ""
  }
  if (name != "" && shared == "" && overloads) doc = about_function[name]
  if (type != "" && /;$/) forward[type] = own
  else if (own == "" && doc != "" && !template) printf "/** %s*/ ", doc
  if (name != "" && doc != "") about_function[name] = doc
  if (!template) own = ""
}
/\{$/ { braces = 1 }
/^}/ { braces = 0 }
(/;$/ || /;  \/\//) && !braces || /^}/ || /^namespace/ { inside = 0 }
/^namespace/ { braces = 0 }
{ print }
END { if (blank_held) print "" }
