import PipelineKit

/// `pipeline completion bash|zsh|fish`.
///
/// The scripts know nothing of commands and options: they ask the program with `--complete WORD…`, so that what they
/// propose is always what this very program takes.
enum CompletionCommand {
  static let command = Command(
    name: "completion", summary: "prints a script by which a shell completes command lines",
    notes: [
      "Commands, options, their values, job files, stages, models and templates are completed. bash: put the script "
        + "into ~/.local/share/bash-completion/completions/pipeline, or have ~/.bashrc source it. zsh: put it into a "
        + "folder of fpath as _pipeline. fish: put it into ~/.config/fish/completions/pipeline.fish. `make install` "
        + "lays all three.",
      "Exit codes: 0 printed, 2 wrong command line.",
    ],
    operand: Operand(name: "bash|zsh|fish", help: "the shell", count: 1...1),
    examples: [
      "source <(pipeline completion bash)", "pipeline completion fish > ~/.config/fish/completions/pipeline.fish",
    ]
  ) { (arguments, invocation) throws(UsageError) in
    let shell = arguments.operands[0]
    guard let script = scripts[shell] else {
      throw UsageError("there is no completion for \"\(shell)\"", hint: "one of bash, zsh and fish")
    }
    invocation.output.print(script)
    return ExitCode.done.rawValue
  }

  private static let scripts = ["bash": bash, "zsh": zsh, "fish": fish]

  // The program that is asked is the one on the line, which may be another than the one on PATH.
  private static let bash = #"""
    # Completion of pipeline for bash.

    _pipeline() {
      local program=${1/#\~/$HOME} line kind= prefix= cur strip= i
      local -a words=()
      # A word such as --report=out is several words to bash, which breaks at "=" and ":".
      for ((i = 1; i <= COMP_CWORD; i++)); do
        local word=${COMP_WORDS[i]}
        if ((${#words[@]})) && [[ $word == [=:]* || ${COMP_WORDS[i-1]} == *[=:] ]] && ((i > 1)); then
          words[${#words[@]}-1]+=$word
        else
          words+=("$word")
        fi
      done
      cur=${words[${#words[@]}-1]}
      # What stands before the last break is not part of what bash replaces.
      if [[ $COMP_WORDBREAKS == *=* && $cur == *=* ]]; then strip=${cur%%=*}=; fi
      COMPREPLY=()
      while IFS= read -r line; do
        if [[ $line == :* ]]; then
          kind=${line%% *} prefix=${line#* }
        else
          line=${line%%$'\t'*}
          COMPREPLY+=("${line#"$strip"}")
        fi
      done < <("$program" --complete "${words[@]}" 2>/dev/null)
      if [[ -n $kind ]]; then
        local path=${cur#"$prefix"} found
        path=${path/#\~\//$HOME/}
        compopt -o filenames 2>/dev/null
        while IFS= read -r found; do
          if [[ $kind == :jobs && ! -d $found && $found != *.json ]]; then continue; fi
          # Where "=" breaks no words, bash replaces all of it.
          [[ -n $strip ]] || found=$prefix$found
          COMPREPLY+=("$found")
        done < <(if [[ $kind == :folders ]]; then compgen -d -- "$path"; else compgen -f -- "$path"; fi)
      fi
      if ((${#COMPREPLY[@]} == 1)) && [[ ${COMPREPLY[0]} == *= ]]; then compopt -o nospace 2>/dev/null; fi
    }
    complete -F _pipeline pipeline
    """#

  private static let zsh = #"""
    #compdef pipeline
    # Completion of pipeline for zsh.

    _pipeline() {
      local program=${(Q)words[1]/#\~\//$HOME/} line kind= prefix=
      local -a found=() open=()
      for line in "${(@f)$($program --complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :* ]]; then
          kind=${line%% *} prefix=${line#* }
        elif [[ -n $line ]]; then
          local word=${line%%$'\t'*} help=
          [[ $line == *$'\t'* ]] && help=${line#*$'\t'}
          word=${word//:/\\:}
          if [[ $word == *= ]]; then open+=("$word${help:+:$help}"); else found+=("$word${help:+:$help}"); fi
        fi
      done
      (( $#found )) && _describe -t words pipeline found
      (( $#open )) && _describe -t words pipeline open -S ''
      [[ -n $prefix ]] && compset -P "${(b)prefix}"
      case $kind in
        :files) _files ;;
        :folders) _files -/ ;;
        :jobs) _files -g '*.json' ;;
      esac
    }

    # Whether it is loaded by its name from fpath, or sourced.
    if [[ $funcstack[1] == _pipeline ]]; then _pipeline "$@"; else compdef _pipeline pipeline; fi
    """#

  private static let fish = #"""
    # Completion of pipeline for fish.

    function __pipeline_complete
        set -l token (commandline -ct)
        set -l words (commandline -opc) "$token"
        set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
        for line in ($program --complete $words[2..-1] 2>/dev/null)
            if not string match -q ':*' -- $line
                echo $line
                continue
            end
            set -l kind (string split -m 1 ' ' -- $line)
            set -l typed (string sub -s (math 1 + (string length -- "$kind[2]")) -- "$token")
            for path in (complete -C "__fish_command_without_completions $typed")
                set -l name (string split -m 1 \t -- $path)[1]
                # What is no folder, which ends in a slash, has to be what is wanted.
                if not string match -q '*/' -- $name
                    switch $kind[1]
                        case :folders
                            continue
                        case :jobs
                            string match -q '*.json' -- $name; or continue
                    end
                end
                echo $kind[2]$name
            end
        end
    end

    complete -c pipeline -f -a '(__pipeline_complete)'
    """#
}
