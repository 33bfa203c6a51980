# Cuts Markdown to at most `most` bytes: whole lines, open blocks are closed, and `sentence` reports the cut.
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
