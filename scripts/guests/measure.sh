# What a request costs on a ublk device, counted in instructions.

# In the guest: what a request costs on drives of memory, beside the memory itself. One processor, and a clock
# that counts an instruction as a nanosecond.
measure_script() {
    cat <<'INIT'
bimetal() { command bimetal --config-dir /tmp/conf "$@"; }
insmod /lib/modules/brd.ko rd_nr=2 rd_size=131072 max_part=0 || finish FAILED brd
insmod /lib/modules/ublk_drv.ko || finish FAILED insmod
load() {
    raw_io $2 0.3 ring $3 64 $4 >/tmp/load.log 2>&1 || { cat /tmp/load.log; finish FAILED "load on $2"; }
    sed -n "s/^rand/ROW $1 /p" /tmp/load.log
}
loads() {
    for kib in 4 16 64 128; do load $1 $2 $kib read; done
    # What comes to the log first.
    load $1 $2 4 write
}
echo
loads memory /dev/ram0
bimetal create guest --fast /dev/ram0 --slow /dev/ram1 --landing 16M --force >/tmp/create.log 2>&1 ||
    { cat /tmp/create.log; finish FAILED create; }
command bimetal --config-dir /tmp/conf serve guest --ublk >/tmp/server.log 2>&1 &
for n in $(seq 600); do grep -q serving /tmp/server.log && break; usleep 100000; done
# What is read must be on the fast drive, and not in the log.
dd if=/dev/zero of=/dev/ublkb0 bs=1M count=64 oflag=direct 2>/dev/null
sleep 3
loads ublk /dev/ublkb0
echo "UNCOPIED $(bimetal status guest | grep '^ *device')"
INIT
}

measure() {
    local name=measure-$1
    (cd "$here" && cargo build --release --locked --quiet --package bimetal-uring --example raw_io) || fail "build"
    local target=${CARGO_TARGET_DIR:-$here/target}
    build_initramfs $name measure_script "$(stripped_binary)" "$target/release/examples/raw_io"
    rm -f "$work/$name.console"
    qemu-system-x86_64 -accel tcg -cpu max -icount shift=0,sleep=off -m 1G -smp 1 -nographic -no-reboot -nodefaults \
        -machine q35 -kernel "$kernel" -initrd "$work/$name.initramfs" -append 'console=ttyS0 quiet panic=-1' \
        -serial "file:$work/$name.console" &
    guest=$!
    BIMETAL_GUEST_EMULATED=1
    hear $name '^GUEST PASSED' 240
    say "a request in Linux $1, when an instruction takes a nanosecond"
    grep -a '^ROW\|^UNCOPIED' "$work/$name.console"
}
