# A machine that starts from a bimetal volume: its firmware, boot loader and kernel come from the vhost-user disk
# and from nowhere else, its root is mounted from there, and the server is killed under them.

# The disk begins with what is booted, a FAT file system; behind it is the root, a partition. In MiB.
#
# The firmware starts the first sector of FAT and no master boot record, which would put that sector in its own
# place: an emulated processor goes on with the code it knows when another process, here the server, writes
# new code over it. So the table of partitions is a GPT among the sectors that FAT leaves alone.
root_begins=48
root_length=512
fat_leaves_sectors=64

# In the initramfs: finds the root on the disk that the machine was started from, and goes there.
boot_initramfs_script() {
    cat <<'INIT'
# The boot loader has left the cursor in the middle of a line.
echo
grep -q BOOT_IMAGE= /proc/cmdline || finish FAILED "no boot loader has started this kernel"
insmod /lib/modules/virtio_blk.ko
for n in 1 2 3 4 5 6 7 8 9; do [ -b /dev/vda1 ] || sleep 1; done
mount -t ext4 /dev/vda1 /mnt || finish FAILED "mount the root"
exec switch_root /mnt /init
INIT
}

# In the system on the volume, whose files tell whether it has been there before.
boot_system_script() {
    cat <<INIT
rounds=$kills
INIT
    cat <<'INIT'
grep -q '^/dev/vda1 / ext4 ' /proc/mounts || finish FAILED "the root is not on the volume"
cd /data
# Reads what the volume has, and not what memory still has of it.
verify() {
    sync
    echo 3 >/proc/sys/vm/drop_caches
    md5sum -c $1 >/tmp/verified || { grep -v 'OK$' /tmp/verified; finish FAILED "files differ $2"; }
}
write_round() {
    echo "ROUND $1 BEGINS"
    step=0
    while [ $step -lt 12 ]; do
        step=$((step + 1))
        fresh /tmp/one 3
        # In turn through memory, and past it with a flush for each.
        if [ $((step % 2)) = 0 ]; then
            cp /tmp/one file$1.$step || finish FAILED "copy in round $1"
        else
            dd if=/tmp/one of=file$1.$step bs=64k oflag=direct conv=fsync 2>/dev/null ||
                finish FAILED "direct write in round $1"
        fi
        echo "$(sum /tmp/one)  file$1.$step" >>/tmp/sums$1
        [ $((step % 4)) = 0 ] && sync
    done
    verify /tmp/sums$1 "in round $1"
    cat /tmp/sums$1 >>sums
    echo "ROUND $1 ENDS"
}
if [ -e sums ]; then
    echo "FOUND $(sum sums)"
    verify sums "after everything was started again"
    write_round again
else
    echo "FOUND nothing"
    round=0
    while [ $round -lt $rounds ]; do
        round=$((round + 1))
        # The host kills the server somewhere in here.
        write_round $round
    done
fi
verify sums "at the end"
echo "LEFT $(sum sums)"
cd /
# Nothing is left for the next start to mend.
mount -o remount,ro / || finish FAILED "the root cannot be left"
INIT
}

# A disk with a boot loader, a kernel and a root, made without mounting anything.
build_boot_disk() {
    local disk=$1 boot=$work/boot.fat root=$work/boot.ext4 system=$work/boot.system
    local guest_modules=(virtio_blk)
    build_initramfs boot boot_initramfs_script
    rm -rf "$disk" "$boot" "$root" "$system"
    # 'gpt': the kernel takes the table though the first sector does not announce it.
    cat >"$work/syslinux.cfg" <<'CONFIG'
SAY BOOT LOADER RUNS
DEFAULT guest
LABEL guest
  LINUX /vmlinuz
  INITRD /initramfs
  APPEND console=ttyS0 quiet panic=-1 gpt
CONFIG
    mkfs.vfat -F 16 -R $fat_leaves_sectors -C "$boot" $((root_begins * 1024)) >/dev/null &&
        syslinux --install "$boot" &&
        mcopy -i "$boot" "$work/syslinux.cfg" ::/syslinux.cfg &&
        mcopy -i "$boot" "$kernel" ::/vmlinuz &&
        mcopy -i "$boot" "$work/boot.initramfs" ::/initramfs || fail "the boot partition could not be made"
    mkdir -p "$system"/{bin,dev,proc,sys,tmp,run,data}
    cp "$(command -v busybox)" "$system/bin/busybox"
    { guest_prologue; boot_system_script; guest_epilogue; } >"$system/init"
    chmod +x "$system/init"
    mkfs.ext4 -q -b 4096 -d "$system" "$root" ${root_length}M >/dev/null || fail "the root could not be made"
    # A MiB more for the table's copy.
    truncate -s $((root_begins + root_length + 1))M "$disk"
    printf '%s\n' 'label: gpt' "start=${root_begins}MiB, size=${root_length}MiB, type=L" | sfdisk -q "$disk" ||
        fail "the partition could not be made"
    dd if="$boot" of="$disk" count=1 conv=notrunc status=none &&
        dd if="$boot" of="$disk" bs=$((fat_leaves_sectors * 512)) skip=1 seek=1 conv=notrunc,sparse status=none &&
        dd if="$root" of="$disk" bs=1M seek=$root_begins conv=notrunc,sparse status=none ||
        fail "the disk could not be made"
}

# A server with a door for the machine and one for this script.
serve_boot() { serve --nbd "unix:$work/boot.nbd"; }

# The machine has this one disk, and neither a kernel nor an initramfs from elsewhere.
start_from_volume() {
    start_machine "$1" -chardev "socket,id=disk,path=$work/disk.vhost,reconnect=1" \
        -device vhost-user-blk-pci,chardev=disk,num-queues=2,bootindex=0
}

kill_boot_server() {
    kill -9 "$server"
    wait "$server" 2>/dev/null
    serve_boot
}

# What a guest has said after a word.
said() { sed -n "s/^$2 \([^[:cntrl:]]*\).*/\1/p" "$work/$1.console" | tail -1; }

boot_from_volume() {
    say "boot: a machine starts from a volume, $((kills + 1)) servers killed under it, and starts once more"
    local disk=$work/boot.disk back=$work/boot.back nbd="nbd+unix:///?socket=$work/boot.nbd" round left
    need mkfs.vfat dosfstools
    need mcopy mtools
    need syslinux syslinux
    need sfdisk fdisk
    need qemu-img qemu-utils
    # Their tools of file systems are not in everybody's path.
    local PATH=$PATH:/usr/sbin:/sbin
    build_boot_disk "$disk"
    rm -rf "$work/conf" "$work"/*.img "$work/server.log" "$work"/boot-*.console "$back"
    bimetal create guest --fast "$work/fast.img:256M" --slow "$work/slow.img:2G" --landing 64M >/dev/null ||
        fail "create"
    serve_boot
    qemu-img convert -n -f raw -O raw "$disk" "$nbd" || fail "the disk could not be written to the volume"

    start_from_volume boot-first
    hear boot-first "BOOT LOADER RUNS"
    kill_boot_server
    say "boot: a server killed under the boot loader and followed by another"
    for round in $(seq "$kills"); do
        hear boot-first "ROUND $round BEGINS"
        sleep "0.$((RANDOM % 8 + 1))"
        kill_boot_server
        say "boot: server $round killed in the middle of a round and followed by another"
    done
    hear boot-first '^GUEST PASSED'
    wait "$guest"
    [ "$(said boot-first FOUND)" = nothing ] || fail "the first start found files"
    left=$(said boot-first LEFT)

    # The machine is off: what it has flushed is all there is.
    kill_boot_server
    start_from_volume boot-second
    hear boot-second '^GUEST PASSED'
    wait "$guest"
    [ -n "$left" ] && [ "$(said boot-second FOUND)" = "$left" ] || fail "the second start did not find what the first had left"

    # Nobody has written to what was booted, and the root needs no repair.
    qemu-img convert -f raw -O raw "$nbd" "$back" || fail "the volume could not be read back"
    cmp -n $((root_begins * 1048576)) "$disk" "$back" || fail "what was booted has changed"
    e2fsck -fn "$back?offset=$((root_begins * 1048576))" >"$work/e2fsck.log" 2>&1 ||
        { cat "$work/e2fsck.log"; fail "the root is damaged"; }
    kill "$server"
    wait "$server" || fail "the server did not end in order"
    bimetal check guest >/dev/null || fail "the volume is damaged"
    rm -f "$disk" "$back" "$work"/boot.{fat,ext4}
    say "boot: PASSED (2 starts, $(cat "$work"/boot-*.console | grep -c 'ENDS') rounds, no I/O error in the guest)"
}
