# A hybrid of emulated drives in a guest, beside the kernel's caches: 'bimetal lab run caches' with fio.
#
# The drives are twins that bimetal serves in the guest as ublk devices. The guest has one processor whose clock counts
# an instruction as a nanosecond and jumps ahead when there is nothing to do: so minutes of waiting for a disk take
# seconds, and a busy machine changes nothing. What an SSD does is limited by that processor, which does the drives' work,
# too: through ublk a request costs it a third of what it does through the kernel's NBD client.

caches_modules() {
    guest_modules=()
    # What others need, where the kernel does not have it built in.
    local module
    for module in dax libcrc32c crc64; do
        [ -n "$(find "$modules" -name "$module.ko.xz")" ] && guest_modules+=("$module")
    done
    guest_modules+=(ublk_drv dm-mod dm-bio-prison dm-bufio dm-persistent-data dm-cache dm-cache-smq dm-writecache bcache)
}

caches_script() {
    echo "who=$who modules='${guest_modules[*]}'"
    cat <<'INIT'
for module in $modules; do insmod /lib/modules/$module.ko || finish FAILED "insmod $module"; done
# The one of busybox knows less than the one that was brought.
rm /bin/setpriv
ulimit -l unlimited
# Waits until a server has said which device it made: $device.
device_of() {
    for n in $(seq 60); do
        device=$(grep -o '/dev/ublkb[0-9]*' $1 | head -1)
        [ -b "$device" ] && return
        sleep 1
    done
    cat $1
    finish FAILED "no device from ${1##*/}"
}
serve_twin() {
    bimetal twin serve $1 --ublk >/tmp/$1.log 2>&1 &
    device_of /tmp/$1.log
    [ $(cat /sys/block/${device#/dev/}/queue/rotational) = $2 ] || finish FAILED "$1 is of the wrong kind"
}
sectors() { cat /sys/block/${1#/dev/}/size; }
serve_twin emulated-disk 1
disk=$device
serve_twin emulated-ssd 0
ssd=$device
case $who in
disk) device=$disk ;;
bimetal*)
    class=cache
    [ $who = bimetal-span ] && class=span
    set -- --fast $ssd --slow $disk --class $class
    [ $class = cache ] && set -- "$@" --mode writeback
    bimetal --config-dir /tmp/conf create vol "$@" >/tmp/create.log 2>&1 || { cat /tmp/create.log; finish FAILED create; }
    bimetal --config-dir /tmp/conf serve vol --ublk --print-uri >/tmp/server.log 2>&1 &
    device_of /tmp/server.log
    ;;
dm-cache)
    # Metadata of 16 MiB on the SSD, and blocks of 64 KiB.
    metadata=32768
    dmsetup create metadata --table "0 $metadata linear $ssd 0" &&
        dmsetup create fast --table "0 $(($(sectors $ssd) - metadata)) linear $ssd $metadata" || finish FAILED dmsetup
    dd if=/dev/zero of=/dev/dm-0 bs=4k count=1 oflag=direct 2>/dev/null
    dmsetup create it --table "0 $(sectors $disk) cache /dev/dm-0 /dev/dm-1 $disk 128 1 writeback smq 0" || finish FAILED dmsetup
    device=/dev/dm-2
    ;;
dm-writecache)
    dmsetup create it --table "0 $(sectors $disk) writecache s $disk $ssd 4096 0" || finish FAILED dmsetup
    device=/dev/dm-0
    ;;
bcache*)
    make-bcache -B $disk -C $ssd --writeback >/tmp/make.log 2>&1 || { cat /tmp/make.log; finish FAILED make-bcache; }
    for drive in $disk $ssd; do echo $drive >/sys/fs/bcache/register; done
    device=/dev/bcache0
    for n in $(seq 60); do [ -b $device ] && break; sleep 1; done
    cutoff=128k
    if [ $who = bcache-no-cutoff ]; then
        cutoff=0
        for file in /sys/fs/bcache/*/congested_*_threshold_us; do echo 0 >$file; done
    fi
    echo $cutoff >/sys/block/bcache0/bcache/sequential_cutoff
    ;;
*) finish FAILED "nobody is called $who" ;;
esac
for n in $(seq 60); do [ -b $device ] && break; sleep 1; done
[ -b $device ] || { cat /tmp/*.log; finish FAILED "no $device"; }
while true; do
    sleep 60
    echo "AT $(cut -d' ' -f1 /proc/uptime) s, done: $(ls /tmp/out/steps 2>/dev/null | wc -l)"
done &
bimetal lab run caches --on $device --force --out /tmp/out </dev/null 2>&1 || finish FAILED "lab run"
echo "RUN $(tr -d '\n' </tmp/out/run.json)"
INIT
}

caches() {
    local who=$1 name=caches-$1 program programs=()
    for program in fio setpriv dmsetup make-bcache; do
        need $program "fio util-linux dmsetup bcache-tools"
        programs+=("$(PATH="$PATH:/usr/sbin:/sbin" command -v $program)")
    done
    caches_modules
    build_initramfs "$name" caches_script "$(stripped_binary)" "${programs[@]}"
    rm -f "$work/$name.console"
    say "caches: $who; the guest speaks in $work/$name.console"
    # An old processor has no instruction that copies byte by byte, which emulation is slow at.
    qemu-system-x86_64 -accel tcg,tb-size=512 -cpu Nehalem,-cx16 -icount shift=0,sleep=off -m 8G -smp 1 \
        -nographic -no-reboot -nodefaults -machine q35 -kernel "$kernel" -initrd "$work/$name.initramfs" \
        -append 'console=ttyS0 quiet panic=-1 mitigations=off' -serial "file:$work/$name.console" &
    guest=$!
    BIMETAL_GUEST_EMULATED=1
    hear "$name" '^GUEST PASSED' 1800
    wait "$guest"
    sed -n 's/^RUN //p' "$work/$name.console" | tr -d '\r' >"$work/$name.json"
    grep -av '^AT \|^RUN \|^GUEST' "$work/$name.console" | tr -d '\r'
    say "caches: the same as JSON: $work/$name.json"
}
