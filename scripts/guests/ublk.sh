# bimetal in a guest, with a ublk device: its server is killed under a mounted file system.

# In the guest: a server on two virtio disks that is killed again and again under a mounted file system.
ublk_script() {
    cat <<INIT
kills=$kills
INIT
    cat <<'INIT'
insmod /lib/modules/virtio_blk.ko
bimetal() { command bimetal --config-dir /tmp/conf "$@"; }
for n in 1 2 3 4 5 6 7 8 9; do [ -b /dev/vdb ] || sleep 1; done
bimetal create guest --fast /dev/vda --slow /dev/vdb --landing 16M >/tmp/create.log 2>&1 ||
    { cat /tmp/create.log; finish FAILED create; }
# Without the driver it says what to do.
bimetal serve guest --ublk >/tmp/server.log 2>&1 && finish FAILED "served without a driver"
grep -q 'modprobe ublk_drv' /tmp/server.log || { cat /tmp/server.log; finish FAILED "no advice"; }
insmod /lib/modules/ublk_drv.ko || finish FAILED insmod
start() {
    attempts=0
    while true; do
        : >/tmp/server.log
        command bimetal --config-dir /tmp/conf serve guest --ublk >/tmp/server.log 2>&1 &
        server=$!
        echo $server >/run/server
        while kill -0 $server 2>/dev/null; do
            grep -q serving /tmp/server.log && return
            usleep 100000
        done
        attempts=$((attempts + 1))
        [ $attempts -lt 20 ] || { cat /tmp/server.log; finish FAILED "the server does not start"; }
        usleep 200000
    done
}
start
[ -b /dev/ublkb0 ] || finish FAILED "no device"
cat /sys/block/ublkb0/size /sys/block/ublkb0/queue/write_cache
echo "QUEUES $(ls /sys/block/ublkb0/mq | wc -l)"
killer() {
    n=0
    while [ $n -lt $kills ]; do
        n=$((n + 1))
        sleep $((2 + n))
        kill -9 $(cat /run/server)
        start
        grep -q 'took over /dev/ublkb0' /tmp/server.log || finish FAILED "not taken over"
        echo "KILL $n"
    done
    # And once in order, while the file system is mounted.
    sleep 2
    kill $(cat /run/server)
    wait $server
    # What it says: the device is in use and waits.
    grep -q 'waits for the next server' /tmp/server.log || { cat /tmp/server.log; finish FAILED "not left"; }
    start
    touch /tmp/killed
}
INIT
    load_on /dev/ublkb0 $((kills + 1)) | sed 's/^round=0$/killer \&\nround=0/; s/^umount \/mnt ||.*umount$/while [ ! -e \/tmp\/killed ]; do sleep 1; done\n&/'
    cat <<'INIT'
# Large reads, not one behind the other: their data is the same with and without a copy.
sleep 3
for n in 5 99 17 64 33 80 2 120; do
    dd if=/dev/ublkb0 of=/tmp/part bs=64k skip=$((16384 + n)) count=1 iflag=direct 2>/dev/null
    dd if=/tmp/raw of=/tmp/same bs=64k skip=$n count=1 2>/dev/null
    cmp /tmp/part /tmp/same || finish FAILED "what was read without a copy differs"
done
echo "UNCOPIED $(bimetal status guest --json | tr ',' '\n' | sed -n 's/.*"ublk_uncopied_reads": *//p')"
# Replaced in order under a program that only has the disk open, too.
exec 9<>/dev/ublkb0
kill $(cat /run/server)
tries=0
until grep -q 'waits for the next server' /tmp/server.log; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || { cat /tmp/server.log; finish FAILED "not left to who has it open"; }
    sleep 1
done
# Which must not have it open itself.
start 9>&-
grep -q 'took over /dev/ublkb0' /tmp/server.log || finish FAILED "not taken over from who has it open"
dd bs=4k count=1 of=/dev/null <&9 2>/dev/null || finish FAILED "the open disk fails after the replacement"
exec 9>&-
kill $(cat /run/server)
tries=0
while [ -b /dev/ublkb0 ]; do
    tries=$((tries + 1))
    [ $tries -lt 60 ] || { cat /tmp/server.log; finish FAILED "the device stays"; }
    sleep 1
done
# In the background, as 'attach' does it.
device=$(bimetal attach guest --ublk) || finish FAILED attach
[ -b "$device" ] || finish FAILED "attach prints '$device'"
mount $device /mnt || finish FAILED "mount what was attached"
bimetal detach guest 2>/tmp/detach.log
[ $? = 4 ] || { cat /tmp/detach.log; finish FAILED "detached under a file system"; }
umount /mnt
bimetal detach guest >/tmp/detach.log 2>&1 || { cat /tmp/detach.log; finish FAILED detach; }
[ ! -b "$device" ] || finish FAILED "$device stays"
# A twin as a device ends with its server: told to while somebody uses it, told twice, and killed.
serve_twin() {
    command bimetal twin serve wd5002abys --scale 1/64 --ublk >/tmp/twin.log 2>&1 &
    server=$!
    tries=0
    until [ -b "$(tail -1 /tmp/twin.log)" ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { cat /tmp/twin.log; finish FAILED "no device of a twin"; }
        sleep 1
    done
    twin=$(tail -1 /tmp/twin.log)
}
is_gone() {
    tries=0
    while [ -b $twin ]; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { cat /tmp/twin.log; finish FAILED "the device of a twin stays $1"; }
        sleep 1
    done
}
is_awaited() {
    tries=0
    until grep -q "waiting to take $twin away" /tmp/twin.log; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || { cat /tmp/twin.log; finish FAILED "a twin in use is not waited for"; }
        sleep 1
    done
}
serve_twin
[ "$(cat /sys/block/${twin#/dev/}/queue/rotational)" = 1 ] || finish FAILED "the twin of a disk does not turn"
[ "$(cat /sys/block/${twin#/dev/}/queue/write_cache)" = "write back" ] || finish FAILED "the twin has no cache"
dd if=/tmp/raw of=$twin bs=64k seek=64 count=16 oflag=direct conv=fsync 2>/dev/null || finish FAILED "write to a twin"
dd if=$twin of=/tmp/part bs=64k skip=64 count=16 iflag=direct 2>/dev/null
dd if=/tmp/raw of=/tmp/same bs=64k count=16 2>/dev/null
cmp /tmp/part /tmp/same || finish FAILED "the twin gives something else back"
exec 9<>$twin
kill $server
is_awaited
dd bs=4k count=1 of=/dev/null <&9 2>/dev/null || finish FAILED "a twin that is waited for does not answer"
exec 9>&-
is_gone "when nobody uses it any more"
wait $server || finish FAILED "a twin that was told to end says $?"
serve_twin
exec 9<>$twin
kill $server
is_awaited
kill $server
is_gone "when told twice"
wait $server
[ $? = 1 ] || finish FAILED "a twin that was told twice ends well"
exec 9>&-
serve_twin
kill -9 $server
is_gone "when its server was killed"
echo "TWIN ENDED"
bimetal check guest >/tmp/check.log 2>&1 || { cat /tmp/check.log; finish FAILED "the volume is damaged"; }
INIT
}

ublk() {
    local name=ublk-$1
    say "ublk: a mounted ublk device in a guest of Linux $1, $kills servers killed under it, one replaced in order"
    build_initramfs $name ublk_script "$(stripped_binary)"
    rm -f "$work"/*.img "$work/$name.console"
    truncate -s 256M "$work/fast.img"
    truncate -s 1G "$work/slow.img"
    boot $name -drive "file=$work/fast.img,format=raw,if=virtio,cache=none,discard=unmap" \
        -drive "file=$work/slow.img,format=raw,if=virtio,cache=none,discard=unmap"
    hear $name '^GUEST PASSED' 240
    wait "$guest"
    if kernel_from 6.15; then
        grep -q '^UNCOPIED [1-9]' "$work/$name.console" || fail "no read went without a copy"
    fi
    say "ublk: PASSED ($(grep -c '^KILL' "$work/$name.console") kills, $(grep -c 'ENDS' "$work/$name.console") rounds, no I/O error in the guest)"
}
