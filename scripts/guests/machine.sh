# The machine that guests run on: a kernel, an initramfs, QEMU, and what a guest says.

# A kernel, and its modules that are not built into it.
fetch_kernel() {
    local debian=$1 release=$2
    kernel_dir=${BIMETAL_GUEST_KERNEL:-$work/kernel-$release}
    if ! compgen -G "$kernel_dir/boot/vmlinuz-*" >/dev/null; then
        say "fetching Linux $release from the backports of Debian $debian (34 MB, once)"
        (
            # Beside the lists and not among them, where apt tidies up.
            sources=$work/$debian-backports.list
            rm -rf "$work/apt" && mkdir -p "$work/apt/partial" && cd "$work/apt" || exit 1
            keyring=/usr/share/keyrings/debian-archive-keyring.gpg
            echo "deb [signed-by=$keyring] http://deb.debian.org/debian $debian-backports main" >"$sources"
            options="-o Dir::Etc::sourcelist=$sources -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD"
            options+=" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
            # shellcheck disable=SC2086 # options are words
            apt-get $options update >apt.log 2>&1 &&
                package=$(apt-cache $options search --names-only "^linux-image-$release.*cloud-amd64\$" |
                    cut -d' ' -f1 | sort -V | tail -1) &&
                apt-get $options download "$package" >>apt.log 2>&1 &&
                dpkg-deb -x "$package"*.deb "$work/kernel-$release"
        ) || skip "no kernel could be fetched; see $work/apt/apt.log, or set BIMETAL_GUEST_KERNEL"
    fi
    kernel=$(compgen -G "$kernel_dir/boot/vmlinuz-*" | tail -1)
    modules=$(find "$kernel_dir" -path '*/kernel/drivers' | tail -1)/..
    kernel_release=${kernel##*/vmlinuz-}
}

# Whether the kernel is this version or newer.
kernel_from() { printf '%s\n' "$1" "$kernel_release" | sort -V -C; }

# Symbols are not needed in a guest, and memory is short.
stripped_binary() {
    mkdir -p "$work/bin"
    cp "$binary" "$work/bin/bimetal"
    strip -s "$work/bin/bimetal" 2>/dev/null
    echo "$work/bin/bimetal"
}

# Puts a program into the initramfs with the libraries it is linked with.
bring() {
    local root=$1 program=$2 library
    mkdir -p "$root/usr/bin"
    cp "$program" "$root/usr/bin/"
    for library in $(ldd "$program" | grep -o '/[^ )]*'); do
        mkdir -p "$root$(dirname "$library")"
        cp -L "$library" "$root$library"
    done
}

# What a guest may load, unless somebody says otherwise. In order: nothing resolves what they need of each other.
guest_modules=(virtio_blk ublk_drv brd)

# An initramfs with busybox, the modules, mkfs.ext4, what else is named, and a script to run.
build_initramfs() {
    local name=$1 script=$2 root module
    shift 2
    root=$work/$name.root
    rm -rf "$root"
    mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,run,lib/modules}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for module in "${guest_modules[@]}"; do
        xz -dc "$(find "$modules" -name "$module.ko.xz")" >"$root/lib/modules/$module.ko" ||
            fail "this kernel has no module $module"
    done
    bring "$root" "$(PATH="$PATH:/usr/sbin:/sbin" command -v mkfs.ext4)"
    while [ $# -gt 0 ]; do bring "$root" "$1"; shift; done
    { guest_prologue; "$script"; guest_epilogue; } >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/$name.initramfs"
}

guest_prologue() {
    cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin HOME=/tmp
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t tmpfs none /run
echo 4 >/proc/sys/kernel/printk
# Waits between the steps of a kill must not make the kernel give a task up.
echo 0 >/proc/sys/kernel/hung_task_timeout_secs 2>/dev/null
finish() {
    errors=$(dmesg | grep -ciE 'I/O error|buffer i/o|EXT4-fs (error|warning)|blk_update_request')
    [ "$1" = PASSED ] && [ "$errors" != 0 ] && set -- FAILED "the kernel saw $errors errors"
    [ "$1" = PASSED ] || dmesg | tail -40
    echo "GUEST $*"
    sync
    poweroff -f
    sleep 100
}
# A file of so many MiB with content that no other file has.
fresh() { dd if=/dev/urandom of="$1" bs=1M count="$2" 2>/dev/null; }
sum() { md5sum "$1" | cut -d' ' -f1; }
INIT
}

guest_epilogue() { echo 'finish PASSED'; }

accelerated() { [ -z "${BIMETAL_GUEST_EMULATED:-}" ]; }

# Whether KVM boots this kernel here: nested in other machines it may not.
probe_kvm() {
    accelerated || return
    nothing() { :; }
    build_initramfs probe nothing
    rm -f "$work/probe.console"
    if [ -w /dev/kvm ]; then
        boot probe >"$work/probe.log" 2>&1
        for _ in $(seq 200); do
            grep -q '^GUEST PASSED' "$work/probe.console" 2>/dev/null && break
            grep -q 'KVM internal error' "$work/probe.log" && break
            kill -0 "$guest" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$guest" 2>/dev/null
        wait "$guest" 2>/dev/null
        grep -q '^GUEST PASSED' "$work/probe.console" 2>/dev/null && return
    fi
    say "KVM does not boot this kernel here: emulating the processor, which takes minutes"
    BIMETAL_GUEST_EMULATED=1
}

# Starts QEMU on an initramfs; what the guest says goes to a file.
boot() {
    local name=$1
    shift
    start_machine "$name" -kernel "$kernel" -initrd "$work/$name.initramfs" -append 'console=ttyS0 quiet panic=-1' "$@"
}

# Starts QEMU on what is given.
start_machine() {
    local name=$1
    shift
    # QEMU 7.2 mixes the flags up behind a cmpxchg16b when it emulates several processors at once.
    local machine=(-accel tcg -cpu max,-cx16)
    accelerated && machine=(-accel kvm -cpu kvm64)
    qemu-system-x86_64 "${machine[@]}" -m 768M -smp 2 -nographic -no-reboot -nodefaults \
        -object memory-backend-memfd,id=ram,size=768M,share=on -machine q35,memory-backend=ram \
        -serial "file:$work/$name.console" "$@" &
    guest=$!
}

# Waits until the guest has said it, or is gone.
hear() {
    local name=$1 text=$2 patience=${3:-120}
    accelerated || patience=$((patience * 8))
    for _ in $(seq $((patience * 10))); do
        grep -q "$text" "$work/$name.console" 2>/dev/null && return 0
        grep -q '^GUEST FAILED' "$work/$name.console" 2>/dev/null && break
        kill -0 "$guest" 2>/dev/null || break
        sleep 0.1
    done
    grep -q "$text" "$work/$name.console" && return 0
    tail -60 "$work/$name.console"
    fail "the guest did not say '$text'"
}
