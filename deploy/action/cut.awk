# Markdown that is not longer than `most` bytes: whole lines, what is open is closed, and a sentence (`sentence`) says that it was cut.
# A byte is never more than a character, however characters are counted.
{
  used += length($0) + 1
  if (!cut && used > most - length(sentence) - 200) cut = 1
  if (cut) next
  if (/^<details>/) open++
  if (/^<\/details>/) open--
  if (/^(```|~~~)/) fenced = !fenced
  print
}
END {
  if (!cut) exit
  if (fenced) print "~~~~~~"
  while (open-- > 0) print "\n</details>"
  print "\n" sentence
}
