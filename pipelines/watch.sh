#!/usr/bin/env bash
# Runs a command each time files have come into a folder, or anywhere below it: one at a time, and again when files came
# during a run. Once at the start too. Needs inotifywait (Debian: inotify-tools).
#
# Usage: watch.sh FOLDER COMMAND [ARGUMENT…]
#   watch.sh photos pipeline run job.json --wait
#   QUIET=10 watch.sh …     begin when nothing has come for 10 seconds (default 2), or after a minute at most
#
# Ends by SIGTERM, SIGINT or SIGHUP, which the run that is under way gets too; when the command could not start (exit
# codes 2 to 4, 126, 127), with its code; with 1 when the folder can no longer be watched.
set -u
if [ $# -lt 2 ]; then
  echo "usage: watch.sh FOLDER COMMAND [ARGUMENT...]" >&2
  exit 2
fi
folder=$1
shift
quiet=${QUIET:-2}
command -v inotifywait >/dev/null || { echo "watch.sh: inotifywait is missing: apt-get install inotify-tools" >&2; exit 4; }
[ -d "$folder" ] || { echo "watch.sh: there is no folder $folder" >&2; exit 4; }

run='' watcher='' ended=''
finish() {
  ended=$1
  if [ -n "$run" ]; then kill -TERM "$run" 2>/dev/null; else leave; fi
}
leave() {
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null
  exit "$ended"
}
trap 'finish 143' TERM
trap 'finish 130' INT
trap 'finish 129' HUP

# Events wait in the pipe while a run is under way; when it is full they wait in the kernel, which says so when it loses
# any. One that is left is enough for another run. Folders count too: what is in them may have come before they were
# watched. "Watches established" is the first event.
exec {events}< <(exec inotifywait --monitor --recursive --event close_write --event moved_to --event create \
  --format '+%e' -- "$folder" 2>&1)
watcher=$!

while read -r -u "$events" line; do
  case $line in
    +CREATE) continue ;; # A file that has just been begun; CLOSE_WRITE follows.
    +* | 'Watches established.') ;;
    'Setting up watches.'*) continue ;;
    *) echo "watch.sh: $line" >&2; continue ;;
  esac
  # Until nothing more comes, what comes belongs to this run.
  latest=$((SECONDS + 60))
  while [ "$SECONDS" -lt "$latest" ] && read -r -t "$quiet" -u "$events" line; do :; done
  [ -z "$ended" ] || leave
  "$@" &
  run=$!
  # A signal ends the wait, not the run.
  while :; do
    wait "$run"
    code=$?
    kill -0 "$run" 2>/dev/null || break
  done
  run=''
  [ -z "$ended" ] || leave
  case $code in
    0) ;;
    2 | 3 | 4 | 126 | 127) ended=$code; leave ;;
    *) echo "watch.sh: the run ended with $code" >&2 ;;
  esac
done
[ -z "$ended" ] || leave
echo "watch.sh: $folder can no longer be watched" >&2
exit 1
