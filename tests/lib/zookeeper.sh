# shellcheck shell=bash
# zookeeper.sh - ZooKeeper servers for scripts; sourced behind tap.sh. They live as long as the script, in the folder that it
# runs in.
#
#     zookeeper_missing && ...                 why none can be started here
#     zookeeper_ensemble [LINE...]             three servers; LINEs are more of zoo.cfg
#     leader=$(zookeeper_who leader)
#
# An ensemble has fixed ports: run it in a network namespace of its own (own_network).
ZOOKEEPER_JARS=/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar
CURATOR_JARS=$(printf ':%s' /usr/share/java/{curator-recipes,curator-framework,curator-client,guava,zookeeper,zookeeper-jute,slf4j-api,slf4j-nop}.jar \
    /usr/share/java/netty-*[a-z].jar)

# own_network: goes on in a network namespace of its own, if that can be had here; HF_OWN_NETWORK says so. To be called
# first, before tap.sh is sourced.
own_network() {
    if [ -z "${HF_OWN_NETWORK:-}" ] && unshare -n true 2>/dev/null; then
        HF_OWN_NETWORK=yes exec unshare -n "$0" "$@"
    fi
    [ -z "${HF_OWN_NETWORK:-}" ] || ip link set lo up
}

zookeeper_missing() {
    [ -n "${HF_OWN_NETWORK:-}" ] || { echo "a network namespace cannot be made here: it needs root"; return; }
    command -v java >/dev/null || { echo "java is not installed (Debian: default-jre-headless)"; return; }
    [ -r /usr/share/java/zookeeper.jar ] || { echo "ZooKeeper is not installed (Debian: libzookeeper-java)"; return; }
    return 1
}

# zookeeper_start FOLDER [JVM OPTION...]: a server, by the zoo.cfg in FOLDER; in the background. `preload`, if set, is the
# path of a library for it.
zookeeper_start() {
    local folder=$1
    shift
    (cd "$folder" && exec env -i ${HF_SUITE:+"HF_SUITE=$HF_SUITE"} ${preload:+"LD_PRELOAD=$preload"} \
        setpriv --pdeathsig KILL java -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
        -Dzookeeper.jmx.log4j.disable=true "${@:--Dzookeeper.forceSync=no}" -cp ".:$ZOOKEEPER_JARS" \
        org.apache.zookeeper.server.quorum.QuorumPeerMain zoo.cfg >>log 2>&1) &
    disown $! # bash is not to report its end
}

# zookeeper_told PORT WORD: what a server answers to a word of four letters.
zookeeper_told() {
    (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf %s "$2" >&3 && timeout 2 cat <&3) 2>/dev/null
}
zookeeper_mode() { zookeeper_told "218$1" srvr | sed -n 's/^Mode: //p'; }
zookeeper_serves() { [ -n "$(zookeeper_mode "$1")" ]; }

# zookeeper_who leader|follower: the number of such a server, among those that run.
zookeeper_who() {
    local i
    for i in 1 2 3; do
        [ -n "${pid[i]:-}" ] && grep -q '^State:.[^T]' "/proc/${pid[i]}/status" 2>/dev/null &&
            [ "$(zookeeper_mode $i)" = "$1" ] && echo $i && return
    done
    return 1
}
has_leader() { zookeeper_who leader >/dev/null; }

# zookeeper_again NUMBER: starts a server of the ensemble, again if it was killed.
zookeeper_again() {
    zookeeper_start "n$1"
    pid[$1]=$!
}

# zookeeper_ensemble [LINE...]: servers 1 to 3 with ticks of 500 ms; their processes are pid[1] to pid[3].
zookeeper_ensemble() {
    local i
    for i in 1 2 3; do
        mkdir -p n$i/data && echo $i >n$i/data/myid
        printf '%s\n' tickTime=500 initLimit=20 syncLimit=10 dataDir="$PWD/n$i/data" clientPort=218$i \
            clientPortAddress=127.0.0.1 admin.enableServer=false '4lw.commands.whitelist=*' \
            server.1=127.0.0.1:2881:3881 server.2=127.0.0.1:2882:3882 server.3=127.0.0.1:2883:3883 "$@" >n$i/zoo.cfg
        zookeeper_again $i
    done
    for i in 1 2 3; do ok "server $i serves" eventually zookeeper_serves $i; done
}

# now_ms: since the start of the machine, as CLOCK_BOOTTIME has it.
now_ms() {
    local up
    read -r up _ </proc/uptime
    echo "${up/./}0"
}
