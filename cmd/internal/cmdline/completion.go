package cmdline

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// scripts are the completion scripts of the shells. PROGRAM is the program, FUNCTION its name as a function.
var scripts = map[string]string{
	"bash": bashScript,
	"zsh":  zshScript,
	"fish": fishScript,
}

// Bash splits words at = and :, which stand in flags and in names of boxes: the script joins them again, as they stand
// in the line. Of each candidate it leaves out what stands before the last of them, since bash keeps that. The bash of
// macOS is 3.2 and has no compopt.
const bashScript = `# bash completion for PROGRAM: source it, or put it into a folder of bash-completion.
_FUNCTION() {
  local line=${COMP_LINE:0:COMP_POINT} words=() n=0 i word cur keep flag out add
  for ((i = 0; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((n > 0)) && [[ $line != [[:space:]]* ]]; then
      words[n-1]+=$word
    else
      words[n++]=$word
    fi
    line=${line#"${line%%[![:space:]]*}"}
    line=${line#"$word"}
  done
  if ((n > 1)) && [[ -n $line && $line != [[:space:]]* ]]; then
    keep=${words[n-1]} cur=${words[n-1]}$line
    [[ $line == [=:] ]] && keep=$cur
    unset "words[n-1]"
  else
    keep= cur=${line#"${line%%[![:space:]]*}"}
  fi
  COMPREPLY=()
  out=$("${words[0]/#\~/$HOME}" __complete -- "${words[@]}" "$cur" 2>/dev/null) || return
  add=${out##*$'\n'} flag=
  [[ $cur == -*=* ]] && flag=${cur%%=*}=
  case $add in
  :files) out=$(compgen -P "$flag" -f -- "${cur#"$flag"}") ;;
  :folders) out=$(compgen -P "$flag" -d -- "${cur#"$flag"}") ;;
  *) out=${out%"$add"} add= ;;
  esac
  while IFS=$'\t' read -r word line; do
    [[ -z $word ]] || COMPREPLY+=("${word#"$keep"}")
  done <<<"$out"
  [[ -z $add ]] || compopt -o filenames 2>/dev/null
}
complete -F _FUNCTION PROGRAM
`

const zshScript = `#compdef PROGRAM
# zsh completion for PROGRAM: source it, or put it as _PROGRAM into a folder of $fpath.
_FUNCTION() {
  local -a lines described
  local line add word
  lines=("${(@f)$("${(Q)words[1]/#\~/$HOME}" __complete -- "${(@Q)words[1,CURRENT-1]}" "$PREFIX" 2>/dev/null)}")
  add=$lines[-1]
  for line in "${(@)lines[1,-2]}"; do
    word=${line%%$'\t'*}
    described+=("${word//:/\\:}:${line#*$'\t'}")
  done
  (( $#described )) && _describe -V PROGRAM described
  case $add in
  :files|:folders)
    [[ $PREFIX == -*=* ]] && compset -P 1 '*='
    if [[ $add == :files ]]; then _files; else _path_files -/; fi ;;
  esac
}
if [[ $funcstack[1] == _PROGRAM ]]; then
  _FUNCTION "$@"
else
  (( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }
  compdef _FUNCTION PROGRAM
fi
`

const fishScript = `# fish completion for PROGRAM: source it, or put it into ~/.config/fish/completions/PROGRAM.fish.
function __FUNCTION_complete
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    set -l out (command $words[1] __complete -- $words "$cur" 2>/dev/null)
    or return
    test (count $out) -gt 1
    and printf '%s\n' $out[1..-2]
    set -l value (string replace -r -- '^-[^=]*=' '' "$cur")
    set -l flag (string replace -r -- '^(-[^=]*=)?.*' '$1' "$cur")
    switch $out[-1]
        case :files
            printf '%s\n' $flag(__fish_complete_path "$value")
        case :folders
            printf '%s\n' $flag(__fish_complete_directories "$value" '')
    end
end
complete -c PROGRAM -f -a '(__FUNCTION_complete)'
`

func completionCommand(program string) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell completion script",
		ArgsUsage: "bash|zsh|fish",
		Description: `The script completes commands, flags, their values and arguments. To load it in every shell:

  bash, in ~/.bashrc                 source <(` + program + ` completion bash)
  zsh, in ~/.zshrc                   source <(` + program + ` completion zsh)
  fish, in ~/.config/fish/config.fish  ` + program + ` completion fish | source`,
		Action: func(c *cli.Context) error {
			text, ok := scripts[c.Args().First()]
			if !ok || c.NArg() != 1 {
				return Usage("want bash, zsh or fish")
			}
			_, err := fmt.Fprint(c.App.Writer, strings.NewReplacer(
				"FUNCTION", strings.ReplaceAll(program, "-", "_"), "PROGRAM", program,
			).Replace(text))
			return err
		},
	}
}
