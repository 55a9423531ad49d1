# A guest's virtio disk is a vhost-user-blk server of bimetal, which is killed again and again.

bimetal() { "$binary" --config-dir "$work/conf" "$@"; }

# Right after a kill the drives may still be locked for a moment, so a start is tried again.
# More doors may be named.
serve() {
    for _ in $(seq 20); do
        : >"$work/server.log"
        "$binary" --config-dir "$work/conf" serve guest --vhost-user "$work/disk.vhost" "$@" >>"$work/server.log" 2>&1 &
        server=$!
        for _ in $(seq 300); do
            grep -q serving "$work/server.log" && return 0
            kill -0 "$server" 2>/dev/null || break
            sleep 0.1
        done
        sleep 0.2
    done
    cat "$work/server.log"
    fail "the server does not start"
}

vhost_user() {
    say "vhost-user: a guest's disk, $kills servers killed under it, one replaced in order"
    local name=vhost-user round
    script() {
        echo 'insmod /lib/modules/virtio_blk.ko'
        echo 'for n in 1 2 3 4 5 6 7 8 9; do [ -b /dev/vda ] || sleep 1; done'
        echo 'cat /sys/block/vda/size /sys/block/vda/queue/write_cache /sys/block/vda/serial'
        echo 'echo "QUEUES $(ls /sys/block/vda/mq | wc -l)"'
        load_on /dev/vda $((kills + 1))
    }
    build_initramfs $name script
    rm -rf "$work/conf" "$work"/*.img "$work/server.log" "$work/$name.console"
    bimetal create guest --fast "$work/fast.img:256M" --slow "$work/slow.img:2G" --landing 64M >/dev/null ||
        fail "create"
    serve
    boot $name -chardev "socket,id=disk,path=$work/disk.vhost,reconnect=1" \
        -device vhost-user-blk-pci,chardev=disk,num-queues=2
    for round in $(seq "$kills"); do
        hear $name "ROUND $round BEGINS"
        sleep "0.$((RANDOM % 8 + 1))"
        kill -9 "$server"
        wait "$server" 2>/dev/null
        serve
        say "vhost-user: server $round killed in the middle of a round and followed by another"
    done
    hear $name "ROUND $((kills + 1)) BEGINS"
    kill "$server"
    wait "$server" || fail "the server did not end in order"
    serve
    hear $name '^GUEST PASSED'
    wait "$guest"
    kill "$server"
    wait "$server" || fail "the server did not end in order"
    bimetal check guest >/dev/null || fail "the volume is damaged"
    say "vhost-user: PASSED ($(grep -c 'ENDS' "$work/$name.console") rounds, no I/O error in the guest)"
}
