
# Words that only a running file system knows. They come from the daemons of this machine, which
# have a second to answer.
_nacre_ask() {
    NACRE_ANSWER_WAIT=1 nacre "$@" 2> /dev/null
}

# Prints the words that may follow: of the words before it, and the begun word.
_nacre_words() {
    case "$1" in
        *" get_param "* | *" set_param "* | *" list_param "*)
            # a level at a time; a level with others below it ends with a point
            _nacre_ask lctl list_param -F "$2*" | sed 's/=$//; s/\/$/./'
            ;;
        *" forget "* | *" list-objects "* | *" export-meta "*)
            _nacre_ask lctl list_param '{mdt,obdfilter}.*' | sed 's/^[^.]*\.//'
            ;;
        *" pool_add "* | *" pool_remove "* | *" pool_destroy "* | *" pool_list "*)
            _nacre_ask lctl pool_list '' | grep -v ' '
            ;;
        *" setstripe "*"-p " | *" find "*"-pool " | *" df "*"-p ")
            _nacre_ask lctl pool_list '' | grep -v ' ' | sed 's/^[^.]*\.//'
            ;;
        *" umount "*)
            awk '$3 == "fuse.nacre" { print $2 }' /proc/self/mounts
            ;;
    esac
}

_TOOL_values() {
    local word found=()
    _TOOL "$@"
    [[ $2 == -* || $3 == "=" ]] && return 0
    while IFS= read -r word; do
        [[ -n $word && $word == "$2"* ]] && found+=("$word")
    done < <(_nacre_words " ${COMP_WORDS[*]:0:COMP_CWORD} " "$2")
    [[ ${#found[@]} -gt 0 ]] && COMPREPLY=("${found[@]}")
    [[ ${#found[@]} -eq 1 && ${found[0]} == *. ]] && compopt -o nospace 2> /dev/null
    return 0
}

complete -F _TOOL_values -o bashdefault -o default TOOL
