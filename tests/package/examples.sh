#!/usr/bin/env bash
# examples.sh - the crontab line and the systemd units of examples/ work: the line as cron runs it, the units as systemd
# reads them, and what the service starts.
. "$(dirname "$0")/../lib/cli_tap.sh"

# cron ignores comments and gives sh what follows the five fields, with little more than this in the environment.
line=$(grep -vE '^(#|$)' "$ROOT/examples/crontab")
is "examples/crontab has one line" "$(wc -l <<<"$line")" 1
like "its first five fields are a time" "$line" '^(\*/[0-9]+|[0-9,*-]+)( +[0-9,*-]+){4} '
job=$(sed -E 's/^([^ ]+ +){5}//' <<<"$line")
fails "no percent sign that cron would make a line end" grep -q % <<<"$job"
mkdir home bin && ln -s "$HOLDFAST" bin/holdfast
cron() {
    (cd home && env -i HOME="$PWD" LOGNAME=user SHELL=/bin/sh PATH="$SCRATCH/bin:/usr/bin:/bin" HOLDFAST_URL="$HOLDFAST_URL" \
        /bin/sh -c "$job" </dev/null)
}
is "it runs and says nothing" "$(cron 2>&1; echo $?)" 0
is "it did its work once" "$(wc -l <home/mirror.log)" 1
"$HOLDFAST" run mirror -- sleep 1000 2>/dev/null &
holder=$!
eventually rows holder mirror 1
cron 2>said
is "while another one is at it, it ends with success" $? 0
is "without a word, so cron sends no mail" "$(cat said)" ""
is "without having run" "$(wc -l <home/mirror.log)" 1
kill $holder
wait $holder

# The unit as systemd would find it installed, with the command of this build in the place of /usr/bin/holdfast.
mkdir units state
sed "s|/usr/bin/holdfast|$HOLDFAST|" "$ROOT/examples/nightly.service" >units/nightly.service
cp "$ROOT/examples/nightly.timer" units
verify() {
    systemd-analyze verify --man=no --recursive-errors=no "$PWD/units/nightly.service" "$PWD/units/nightly.timer" 2>&1
}
is "systemd finds nothing to complain about" "$(verify; echo $?)" 0
sed 's/^ExecStart=/&nonsense/' units/nightly.service >units/broken.service
fails "it would complain about a bad unit" systemd-analyze verify --man=no --recursive-errors=no "$PWD/units/broken.service"
ok "the timer's calendar has a next time" systemd-analyze calendar "$(sed -n 's/^OnCalendar=//p' units/nightly.timer)"
start=$(sed -n 's/^ExecStart=//p' units/nightly.service)
start=${start//%n/nightly.service}
start=${start//\$\{STATE_DIRECTORY\}/$PWD/state}
read -ra words <<<"$start"
is "what the service starts runs and says nothing" "$(env -i HOLDFAST_URL="$HOLDFAST_URL" "${words[@]}" 2>&1; echo $?)" 0
ok "and did its work" test -e state/last-run

# A real systemd, as the manager of a user, runs the timer: the units as they are, but soon instead of at night. In a
# mount namespace of its own, because it asks for traces of a machine that was booted with it.
manager=$PWD/manager
mkdir -p "$manager"/{run,.config/systemd/user/{timers.target.wants,nightly.timer.d}}
chmod 700 "$manager/run"
cp units/nightly.* "$manager/.config/systemd/user"
ln -s ../nightly.timer "$manager/.config/systemd/user/timers.target.wants"
printf '[Unit]\nWants=timers.target\n' >"$manager/.config/systemd/user/default.target"
printf '[Timer]\nOnCalendar=\nRandomizedDelaySec=0\nPersistent=false\nOnActiveSec=200ms\nAccuracySec=10ms\n' \
    >"$manager/.config/systemd/user/nightly.timer.d/soon.conf"
manage() {
    # shellcheck disable=SC2086
    exec $apart sh -c 'mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec "$@"' sh \
        env -i HOME="$manager" XDG_RUNTIME_DIR="$manager/run" PATH=/usr/bin:/bin HOLDFAST_URL="$HOLDFAST_URL" \
        /lib/systemd/systemd --user --log-target=console
}
if [ "$(id -u)" -ne 0 ]; then
    skip "the timer, started by systemd, runs the job under the lock" "needs root: a control group for systemd"
elif ! grep -q ' cgroup2\? ' /proc/self/mounts; then
    skip "the timer, started by systemd, runs the job under the lock" "needs control groups: none are mounted"
elif ! apart=$(namespaces -m); then
    skip "the timer, started by systemd, runs the job under the lock" "$(why_not)"
else
    manage >manager.log 2>&1 &
    systemd=$!
    eventually test -e "$manager/.config/nightly/last-run"
    ok "the timer, started by systemd, runs the job under the lock" test -e "$manager/.config/nightly/last-run"
    ok "and its name is free again" eventually rows holder nightly 0
    kill -RTMIN+24 $systemd # systemd(1): ends a user manager at once
    wait $systemd
fi

ok "its exit code for a wait that is over is no failure" grep -qx 'SuccessExitStatus=75' units/nightly.service
done_testing
