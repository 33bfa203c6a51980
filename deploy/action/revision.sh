# The manifests of a revision, for the scripts that compare with one. To be sourced.

# Whether a path of a commit has manifests. $1: the commit, $2: the path, $3: a file to write to. 2: git failed.
has_manifests() {
  git --literal-pathspecs ls-tree -r -z --name-only "$1" -- "$2" >"$3" || return 2
  names_manifests "$3"
}

# Whether a file of names, each ended by a zero byte, has those of manifests.
names_manifests() {
  tr '\n\0' '?\n' <"$1" | grep -qE '\.(ya?ml|json)(\.gz)?$'
}

# A path as git and palisade accept it: no `./` before it, no `/` after it. Sets `plain`: `$()` would remove newlines.
plain_path() {
  plain=$1
  while :; do
    case $plain in
      ./*) plain=${plain#./} ;;
      ?*/) plain=${plain%/} ;;
      '') plain=. ;;
      *) break ;;
    esac
  done
}
