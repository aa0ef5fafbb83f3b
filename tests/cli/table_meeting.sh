#!/usr/bin/env bash
# table_meeting.sh - one user meets in one table, whatever the environment: a session's, none, sudo's, cron's.
. "$(dirname "$0")/../lib/cli_tap.sh"

if [ "$(id -u)" -ne 0 ]; then
    skip "one user meets in one table" "needs root: becomes another user"
    done_testing
    exit
fi
USER_ID=64986
HOME_DIR=/dev/shm/holdfast-$USER_ID
unset HOLDFAST_URL
[ ! -e "$HOME_DIR" ] || { echo "Bail out! $HOME_DIR is in use" && exit 70; }
trap 'rm -rf "$SCRATCH" "$HOME_DIR"' EXIT
cp "$HOLDFAST" "$SCRATCH/holdfast" && chmod 755 "$SCRATCH" "$SCRATCH/holdfast"
HOLDFAST=$SCRATCH/holdfast
mkdir -m 777 "$SCRATCH/open" && cd "$SCRATCH/open" || exit 70

# as ENVIRONMENT COMMAND...: runs it as one user, in that environment.
as() {
    local environment=$1 become=(setpriv --reuid=$USER_ID --regid=$USER_ID --clear-groups --)
    shift
    case $environment in
    session) HOME=/home/somebody USER=somebody XDG_RUNTIME_DIR=/run/user/$USER_ID LANG=C.UTF-8 "${become[@]}" "$@" ;;
    empty) env -i "${become[@]}" "$@" ;;
    sudo)
        env -i PATH="$PATH" HOME=/root USER=root LOGNAME=root SUDO_USER=somebody XDG_RUNTIME_DIR=/nowhere \
            XDG_DATA_HOME=/nowhere TMPDIR=/nowhere setsid -w "${become[@]}" "$@"
        ;;
    cron) (cd / && umask 022 && env -i PATH=/usr/bin:/bin SHELL=/bin/sh HOME=/ LOGNAME=nobody setsid -w "${become[@]}" "$@") ;;
    esac
}

# hold ENVIRONMENT: holds `job` in the background until the file `end` is there.
hold() {
    rm -f ready end
    as "$1" "$HOLDFAST" run job -- /bin/sh -c ": >'$PWD/ready'; until [ -e '$PWD/end' ]; do sleep 0.05; done" &
    eventually test -e ready
}

for holder in session empty sudo cron; do
    hold $holder
    for other in session empty sudo cron; do
        exits "a job from $holder keeps one from $other out" 75 as $other "$HOLDFAST" run -n job -- /bin/true
    done
    is "a list from cron shows the holder from $holder" "$(as cron "$HOLDFAST" list --json | jq -r '.[].name')" job
    : >end
    wait
    exits "after the job from $holder its lock is free for cron" 0 as cron "$HOLDFAST" run -n job -- /bin/true
done
is "they met in one table" "$(find "$HOME_DIR" -type f)" "$HOME_DIR/table"
is "its folder belongs to the user alone" "$(stat -c '%u %a' "$HOME_DIR")" "$USER_ID 700"
is "and so does the table" "$(stat -c '%u %a' "$HOME_DIR/table")" "$USER_ID 600"
exits "another user cannot open their table" 77 setpriv --reuid=64985 --regid=64985 --clear-groups -- \
    "$HOLDFAST" -u "local:$HOME_DIR/table" run -n job -- /bin/true
like "and is told which" "$said" "$HOME_DIR/table: Permission denied"
done_testing
