# awk -v sources=folder -v out=folder -f apply_diffs.awk your_trainer.md: applies each diff on the page
# to the trainers that the text above it links to, and writes the results to out/<trainer>.cpp. A diff
# has no line numbers: its lines are looked for in the trainer, in order. It changes at most three
# lines, and any number of imports (#include, using).

function fail(text) {
  printf "%s: %s\n", place, text > "/dev/stderr"
  failed = 1
}

# Writes the lines that the diff adds before its next old line.
function add_lines() {
  while (at < count && diff[at] ~ /^\+/) print substr(diff[at++], 2) > result
}

function apply(trainer,    source, line, old) {
  source = sources "/" trainer ".cpp"
  result = out "/" trainer ".cpp"
  print "#include <hvd/torch.hpp>" > result
  at = 0
  for (old = 0; diff[old] ~ /^\+/;) ++old
  while ((getline line < source) > 0) {
    if (old >= count || line != substr(diff[old], 2)) {
      print line > result
      continue
    }
    add_lines()  # at the beginning of the diff
    if (diff[at++] ~ /^ /) print line > result
    add_lines()
    old = at
  }
  close(source)
  close(result)
  if (old < count) fail(source ": no such line, or not in this order: " substr(diff[old], 2))
}

/^```diff$/ {
  place = FILENAME ":" FNR
  in_diff = 1
  count = added = removed = 0
  next
}
/^```$/ && in_diff {
  in_diff = 0
  if (!trainers) fail("no trainer is linked above this diff")
  if (added > 3 || removed > 3) fail("more than three lines change")
  for (; trainers; --trainers) apply(trainer[trainers])
  next
}
in_diff {
  diff[count++] = $0
  if ($0 !~ /^.(#include|using) /) {
    added += /^\+/
    removed += /^-/
  }
  next
}
{
  for (text = $0; match(text, /tests\/trainers\/[a-z_]+\.cpp/); text = substr(text, RSTART + RLENGTH)) {
    trainer[++trainers] = substr(text, RSTART + 15, RLENGTH - 19)
  }
}

END { exit failed }
