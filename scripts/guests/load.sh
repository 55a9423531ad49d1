# Raw writes and a file system, for as long as the host kills servers, then everything once more.
load_on() {
    cat <<INIT
disk=$1
rounds=$2
INIT
    cat <<'INIT'
fresh /tmp/raw 8
want=$(sum /tmp/raw)
dd if=/tmp/raw of=$disk bs=64k seek=16k oflag=direct conv=fsync 2>/dev/null || finish FAILED "raw write"
mkfs.ext4 -q -F -b 4096 $disk 256M || finish FAILED mkfs
mount $disk /mnt || finish FAILED mount
round=0
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    # The host kills the server somewhere in here.
    echo "ROUND $round BEGINS"
    step=0
    while [ $step -lt 12 ]; do
        step=$((step + 1))
        fresh /tmp/one 3
        cp /tmp/one /mnt/file$round.$step || finish FAILED "copy in round $round"
        sum /tmp/one >/tmp/sum$round.$step
        [ $((step % 3)) = 0 ] && sync
        dd if=/tmp/one of=$disk bs=4k seek=$((262144 + 8192 * round + 768 * (step % 8))) \
            oflag=direct 2>/dev/null || finish FAILED "direct write in round $round"
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    step=0
    while [ $step -lt 12 ]; do
        step=$((step + 1))
        [ "$(sum /mnt/file$round.$step)" = "$(cat /tmp/sum$round.$step)" ] ||
            finish FAILED "file$round.$step differs"
    done
    rm /mnt/file$round.[1-4]
    echo "ROUND $round ENDS"
done
umount /mnt || finish FAILED umount
mount $disk /mnt || finish FAILED "mount again"
for file in /mnt/file*; do
    [ "$(sum $file)" = "$(cat /tmp/sum${file#/mnt/file})" ] || finish FAILED "$file differs at the end"
done
dd if=$disk of=/tmp/back bs=64k skip=16k count=128 iflag=direct 2>/dev/null
[ "$(sum /tmp/back)" = "$want" ] || finish FAILED "the raw part differs"
umount /mnt
INIT
}
