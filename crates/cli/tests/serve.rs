//! `serve`: doors, the command it runs, who may serve, and how it ends.

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use support::*;

fn nbd_tools(what: &str) -> bool {
    has_tools(what, &["nbdinfo", "nbdcopy"])
}

#[test]
fn what_is_written_is_there_after_a_restart() {
    if !nbd_tools("data over NBD") {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    fs::write(place.path("data"), pattern(1, 20 << 20)).unwrap();
    place.serve_run("vol0", "nbdcopy --flush data \"$uri\"");
    assert_eq!(place.status("vol0")["state"], "offline");
    place.serve_run("vol0", "nbdcopy \"$uri\" - | head -c 20971520 | cmp - data");
    place.bimetal(&["check", "vol0"]).expect(0, &[]);
}

#[test]
fn the_command_gets_the_address_and_gives_the_exit_code() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let said = place.bimetal(&["serve", "vol0", "--run", "echo $uri $BIMETAL_SIZE_BYTES; exit 7"]);
    assert_eq!(said.code, 7, "{said:?}");
    let size = place.status("vol0")["size_bytes"].to_string();
    assert!(said.out.starts_with("nbd+unix:///vol0?socket=") && said.out.contains(&size));
    // And it was closed in order nevertheless.
    assert_eq!(place.status("vol0")["state"], "offline");
}

#[test]
fn a_volume_is_served_once_and_the_refusal_says_by_whom() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let server = place.serve(&["vol0"]);
    let pid = server.child.id().to_string();
    place.bimetal(&["serve", "vol0"]).expect(4, &["already served", &pid]);
    // By its drives, from another configuration: the drives themselves are locked.
    let other = place.path("other");
    let words = ["--config-dir", other.to_str().unwrap(), "serve", "--fast", "vol0.fast", "--slow"];
    let said = place.bimetal(&[&words[..], &["vol0.slow", "--run", "true"]].concat());
    said.expect(4, &["in use by process", &pid]);
    for verb in ["check", "destroy", "export"] {
        let said = place.bimetal(&[verb, "vol0"]);
        said.expect(4, &[&pid]);
    }
    for verb in [&["check"][..], &["destroy", "--yes"]] {
        let words = ["--config-dir", other.to_str().unwrap(), "--fast", "vol0.fast", "--slow"];
        let said = place.bimetal(&[&words[..2], verb, &words[2..], &["vol0.slow"]].concat());
        said.expect(4, &["in use by process", &pid]);
    }
    let words = ["--config-dir", other.to_str().unwrap(), "--json", "status", "--fast"];
    let said = place.bimetal(&[&words[..], &["vol0.fast", "--slow", "vol0.slow"]].concat());
    assert_eq!(said.json()["volumes"][0]["state"], "in_use", "{said:?}");
    assert_eq!(server.stop().code(), Some(0));
    assert!(fs::read_dir(place.path("conf/run")).unwrap().count() == 0, "nothing is left behind");
}

#[test]
fn a_volume_behind_loop_devices_is_not_served_beside_its_files() {
    if !can_attach("a volume through its files and through loop devices of them") {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let loops = ["vol0.fast", "vol0.slow"].map(|drive| {
        let shown = must(tool("losetup").args(["--find", "--show"]).arg(place.path(drive)));
        shown.trim().to_owned()
    });
    let by_loops = ["--fast", &loops[0], "--slow", &loops[1]];
    // From another configuration directory, where the volume has no name by which to know it.
    let other = place.path("other");
    let elsewhere = ["--config-dir", other.to_str().unwrap()];
    let server = place.serve(&["vol0"]);
    let pid = server.child.id().to_string();
    let said = place.bimetal(&[&elsewhere[..], &["serve"], &by_loops, &["--run", "true"]].concat());
    said.expect(4, &["in use by process", &pid]);
    let said = place.bimetal(&[&elsewhere[..], &["destroy", "--yes"], &by_loops].concat());
    assert!(said.code != 0 && said.err.contains("in use"), "{said:?}");
    let said = place.bimetal(&[&elsewhere[..], &["create", "vol1", "--force"], &by_loops].concat());
    said.expect(4, &["in use"]);
    server.stop();
    let server = place.serve(&by_loops);
    let by_files = ["serve", "--fast", "vol0.fast", "--slow", "vol0.slow", "--run", "true"];
    place.bimetal(&[&elsewhere[..], &by_files].concat()).expect(4, &["in use"]);
    server.stop();
    for device in loops {
        must(tool("losetup").arg("--detach").arg(device));
    }
    place.bimetal(&["check", "vol0"]).expect(0, &[]);
}

#[test]
fn a_signal_closes_in_order_and_a_kill_does_not() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = place.serve(&["vol0"]);
        server.signal(signal);
        assert_eq!(wait(&mut server.child).unwrap().code(), Some(0));
        assert_eq!(place.status("vol0")["state"], "offline");
    }
    place.serve(&["vol0"]).kill();
    assert_eq!(place.status("vol0")["state"], "unclean");
    place.bimetal(&["export", "vol0"]).expect(4, &["not closed in order"]);
    place.bimetal(&["check", "vol0"]).expect(0, &[]);
    place.serve_run("vol0", "true");
    assert_eq!(place.status("vol0")["state"], "offline");
}

#[test]
fn several_doors_serve_the_same_bytes() {
    if !nbd_tools("several doors") {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    fs::write(place.path("data"), pattern(2, 5 << 20)).unwrap();
    let server = place.serve(&["vol0", "--nbd", "unix:a.sock", "--nbd", "tcp:127.0.0.1:0"]);
    let status = place.status("vol0");
    let uris: Vec<&str> = status["server"]["uris"]
        .as_array()
        .unwrap()
        .iter()
        .map(|uri| uri.as_str().unwrap())
        .collect();
    assert_eq!(uris.len(), 2);
    assert_eq!(uris[0], server.uri);
    must(tool("nbdcopy").arg(place.path("data")).arg(uris[0]));
    let back = place.path("back");
    let script = format!("nbdcopy '{}' - | head -c {} > '{}'", uris[1], 5 << 20, back.display());
    must(tool("sh").args(["-c", &script]));
    assert_eq!(fs::read(&back).unwrap(), fs::read(place.path("data")).unwrap());
    assert!(server.stop().success());
    assert!(!place.path("a.sock").exists());
}

#[test]
fn a_virtio_disk_is_offered_until_the_server_ends() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let mut server = place.serve(&["vol0", "--vhost-user", "vhost.sock"]);
    let socket = place.path("vhost.sock");
    assert_eq!(place.status("vol0")["server"]["vhost_user"], socket.to_str().unwrap());
    std::os::unix::net::UnixStream::connect(&socket).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(wait(&mut server.child).unwrap().code(), Some(0));
    assert!(!socket.exists());
    assert_eq!(place.status("vol0")["state"], "offline");
}

#[test]
fn a_kernel_without_ublk_is_said_and_the_volume_stays_whole() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        skip("a kernel without ublk", "this one has it");
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    place.bimetal(&["serve", "vol0", "--ublk"]).expect(1, &["modprobe ublk_drv"]);
    assert_eq!(place.status("vol0")["state"], "offline");
}

#[test]
fn a_twin_wants_a_door_and_says_what_one_as_a_device_needs() {
    let place = Place::new();
    let serve = ["twin", "serve", "wd5002abys"];
    place.bimetal(&serve).expect(2, &["--nbd <ADDRESS>", "--ublk"]);
    let remote = ["--nbd", "tcp:0.0.0.0:0"];
    place.bimetal(&[&serve[..], &remote].concat()).expect(4, &["this machine only"]);
    if std::path::Path::new("/dev/ublk-control").exists() {
        skip("a kernel without ublk", "this one has it");
        return;
    }
    place.bimetal(&[&serve[..], &["--ublk"]].concat()).expect(1, &["modprobe ublk_drv"]);
    let both = ["--ublk", "--nbd", "unix:twin.sock"];
    place.bimetal(&[&serve[..], &both].concat()).expect(1, &["modprobe ublk_drv"]);
    assert!(!place.path("twin.sock").exists());
}

#[test]
fn plain_tcp_beyond_this_machine_must_be_asked_for_by_name() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let words = ["serve", "vol0", "--nbd", "tcp:0.0.0.0:0", "--run", "true"];
    place.bimetal(&words).expect(4, &["--allow-remote-plain-tcp"]);
    place.bimetal(&[&words[..], &["--allow-remote-plain-tcp"]].concat()).expect(0, &[]);
    place.bimetal(&["serve", "vol0", "--nbd", "udp:1:2"]).expect(2, &["unix:PATH"]);
}

#[test]
fn a_read_only_volume_refuses_writes_and_changes_no_byte() {
    if !has_tools("read-only serving", &["nbdsh", "nbdinfo"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "64M", "128M");
    let before =
        [fs::read(place.path("vol0.fast")).unwrap(), fs::read(place.path("vol0.slow")).unwrap()];
    let said = place.bimetal(&[
        "serve",
        "vol0",
        "--read-only",
        "--run",
        "nbdinfo --is read-only \"$uri\" && nbdsh -u \"$uri\" -c 'h.pread(4096, 0)'",
    ]);
    assert_eq!(said.code, 0, "{said:?}");
    let after =
        [fs::read(place.path("vol0.fast")).unwrap(), fs::read(place.path("vol0.slow")).unwrap()];
    assert!(before == after, "read-only means read-only");
}

#[test]
fn the_status_of_a_served_volume_counts_what_happens() {
    if !has_tools("live status", &["nbdsh"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let server = place.serve(&["vol0"]);
    let script = "for i in range(100): h.pwrite(bytes([i]) * 4096, i * 4096 * 2000)\n\
                  h.flush()\nh.pread(4096, 0)\nh.trim(4096 * 16, 0)";
    let before = place.status("vol0");
    must(tool("nbdsh").args(["-u", &server.uri, "-c", script]));
    let after = place.status("vol0");
    let number = |value: &serde_json::Value, path: &str| {
        value
            .pointer(path)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or_else(|| panic!("{path}: {value}"))
    };
    let grew = |path: &str| number(&after, path) - number(&before, path);
    assert_eq!(after["state"], "online");
    assert_eq!(grew("/requests/write/count"), 100);
    assert_eq!(grew("/requests/write/bytes"), 100 * 4096);
    assert_eq!(grew("/requests/read/bytes"), 4096);
    assert_eq!(grew("/requests/flush/count"), 1);
    assert_eq!(grew("/requests/trim/count"), 1);
    assert!(number(&after, "/requests/write/p99_us") >= number(&after, "/requests/write/p50_us"));
    assert!(grew("/served/log_bytes") >= 100 * 4096, "small writes land in the log");
    assert!(grew("/drives/fast/write_bytes") >= 100 * 4096);
    // One flush from the client is one flush on the fast drive and none on the slow one.
    assert_eq!(grew("/drives/fast/flushes"), 1);
    assert_eq!(grew("/drives/slow/flushes"), 0);
    assert_eq!(grew("/drives/slow/writes"), 0);
    for path in [
        "/memory_bytes",
        "/log/size_bytes",
        "/log/used_bytes",
        "/moves/promoted_bytes",
        "/moves/demoted_bytes",
        "/moves/destaged_bytes",
        "/served/fast_bytes",
        "/served/slow_bytes",
        "/drives/fast/errors",
        "/drives/slow/errors",
    ] {
        number(&after, path);
    }
    let iostat = place.bimetal(&["iostat", "vol0", "0.1", "2"]);
    assert!(iostat.code == 0 && iostat.out.matches("slow").count() == 2, "{iostat:?}");
    let json = place.bimetal(&["--json", "iostat"]).json();
    assert_eq!(json["volumes"][0]["name"], "vol0");
    assert!(server.stop().success());
    place.bimetal(&["iostat", "vol0"]).expect(1, &["no server"]);
}

#[test]
fn it_ends_with_its_parent_when_told_to() {
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let binary = env!("CARGO_BIN_EXE_bimetal");
    // The shell is the parent, and ends once the server is ready.
    let script = format!(
        "'{binary}' serve vol0 --exit-with-parent --print-uri > out & \
                          while ! test -s out; do sleep 0.05; done"
    );
    let mut shell = tool("sh");
    shell.args(["-c", &script]).current_dir(place.dir.path());
    shell.env("BIMETAL_CONFIG_DIR", place.path("conf")).stderr(std::process::Stdio::null());
    assert!(shell.status().unwrap().success());
    for _ in 0..500 {
        if place.status("vol0")["state"] == "offline" {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("it still serves: {}", place.status("vol0"));
}

#[test]
fn a_socket_handed_over_by_a_service_manager_is_served() {
    let what = "socket activation";
    if !has_tools(what, &["systemd-socket-activate", "nbdinfo"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    let socket = place.path("activated.sock");
    let mut command = tool("systemd-socket-activate");
    command
        .arg("-E")
        .arg(format!("BIMETAL_CONFIG_DIR={}", place.path("conf").display()))
        .arg("-l")
        .arg(&socket)
        .args([env!("CARGO_BIN_EXE_bimetal"), "serve", "vol0"])
        .current_dir(place.dir.path())
        .stderr(std::process::Stdio::null());
    let mut manager = command.spawn().unwrap();
    for _ in 0..500 {
        if socket.exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let uri = format!("nbd+unix:///vol0?socket={}", socket.display());
    let size = must(tool("nbdinfo").args(["--size", &uri]));
    assert_eq!(size.trim(), place.status("vol0")["size_bytes"].to_string());
    // It has replaced the manager's process by then.
    let pid = rustix::process::Pid::from_raw(manager.id() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(wait(&mut manager).unwrap().code(), Some(0));
    assert!(socket.exists(), "the manager's socket is not ours to remove");
}

#[test]
fn the_thread_pool_serves_as_well_as_the_ring() {
    if !nbd_tools("the thread pool") {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    fs::write(place.path("data"), pattern(3, 5 << 20)).unwrap();
    let script =
        "nbdcopy --flush data \"$uri\" && nbdcopy \"$uri\" - | head -c 5242880 | cmp - data";
    let output =
        run(place.command().env("BIMETAL_IO", "threads").args(["serve", "vol0", "--run", script]));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("thread"), "{said}");
}

#[test]
fn a_volume_as_a_file_without_root_needs_only_fuse() {
    if !Path::new("/dev/fuse").exists() {
        skip("the volume as a file", "/dev/fuse is missing");
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    fs::write(place.path("data"), pattern(4, 3 << 20)).unwrap();
    let script = "dd if=data of=\"$BIMETAL_FUSE_FILE\" bs=1M conv=notrunc,fsync status=none && \
                  head -c 3145728 \"$BIMETAL_FUSE_FILE\" | cmp - data";
    place.bimetal(&["serve", "vol0", "--fuse", "mnt", "--run", script]).expect(0, &[]);
    assert_eq!(fs::read_dir(place.path("mnt")).unwrap().count(), 0, "unmounted");
    // A killed server leaves a dead mount; the next one takes its place.
    place.serve(&["vol0", "--fuse", "mnt"]).kill();
    assert!(fs::read_dir(place.path("mnt")).is_err(), "a dead mount answers nothing");
    let script = "head -c 3145728 \"$BIMETAL_FUSE_FILE\" | cmp - data";
    place.bimetal(&["serve", "vol0", "--fuse", "mnt", "--run", script]).expect(0, &[]);
}

#[test]
fn tls_lets_in_who_has_the_key_and_nobody_else() {
    let what = "TLS";
    if !has_tools(what, &["nbdinfo", "certtool"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "64M", "128M");
    let script = "mkdir pki && cd pki && exec >/dev/null 2>&1 && \
        certtool --generate-privkey --outfile ca-key.pem && \
        printf 'cn = test\\nca\\ncert_signing_key\\n' > ca.info && \
        certtool --generate-self-signed --load-privkey ca-key.pem --template ca.info \
                 --outfile ca-cert.pem && \
        certtool --generate-privkey --outfile server-key.pem && \
        printf 'cn = localhost\\ndns_name = localhost\\nip_address = 127.0.0.1\\n\
                tls_www_server\\nsigning_key\\n' > server.info && \
        certtool --generate-certificate --load-ca-certificate ca-cert.pem --load-ca-privkey \
                 ca-key.pem --load-privkey server-key.pem --template server.info \
                 --outfile server-cert.pem";
    must(tool("sh").args(["-c", script]).current_dir(place.dir.path()));
    // With TLS required, an address beyond this machine needs no override.
    let server = place.serve(&["vol0", "--nbd", "tcp:0.0.0.0:0", "--tls-certificates", "pki"]);
    assert!(server.uri.starts_with("nbds://"), "{}", server.uri);
    let uri = server.uri.replace("0.0.0.0", "localhost");
    let pki = place.path("pki");
    let info = |uri: &str| run(tool("nbdinfo").args(["--size", uri]));
    assert!(info(&format!("{uri}?tls-certificates={}", pki.display())).status.success());
    assert!(!info(&uri.replace("nbds:", "nbd:")).status.success(), "plain clients are refused");
    assert!(server.stop().success());

    fs::write(place.path("keys"), "alice:0123456789abcdef0123456789abcdef\n").unwrap();
    fs::write(place.path("wrong"), "alice:ffffffffffffffffffffffffffffffff\n").unwrap();
    let words = ["vol0", "--nbd", "tcp:127.0.0.1:0", "--tls-psk", "keys"];
    let server = place.serve(&words);
    let uri = |keys: &str| {
        let keys = place.path(keys);
        server.uri.replace("nbds://", "nbds://alice@")
            + &format!("?tls-psk-file={}", keys.display())
    };
    assert!(info(&uri("keys")).status.success());
    assert!(!info(&uri("wrong")).status.success(), "a wrong key is refused");
    assert!(server.stop().success());
}

#[test]
fn a_copy_is_not_served_as_the_block_device_that_a_killed_server_left() {
    let place = Place::new();
    place.create("v", "64M", "128M");
    place.copy_drives("v", "copy");
    let record = serde_json::json!({
        "pid": 1,
        "background": true,
        "ready": true,
        "fast": place.path("v.fast"),
        "slow": place.path("v.slow"),
        "uris": [],
        "ublk": "/dev/null",
    });
    fs::create_dir_all(place.path("conf/run")).unwrap();
    let record_path = place.path("conf/run/v.server");
    let said = |drives: &str| {
        fs::write(&record_path, record.to_string()).unwrap();
        let (fast, slow) = (format!("{drives}.fast"), format!("{drives}.slow"));
        // A door that cannot be opened: what is not refused fails, and serves nothing.
        let nowhere = ["--ublk", "--nbd", "unix:/proc/nowhere/socket"];
        place.bimetal(&[&["serve", "--fast", &fast, "--slow", &slow][..], &nowhere].concat())
    };
    said("copy").expect(4, &["/dev/null was left", "v.fast", "attach --ublk"]);
    assert!(record_path.exists(), "it is refused the next time too");
    let own = said("v");
    assert!(own.code == 1 && !own.err.contains("was left"), "{own:?}");
}

/// QEMU waits for its server when told to (`reconnect-delay`), and asks again for what was not answered.
#[test]
fn a_client_that_reconnects_sees_no_error_over_a_restart_and_a_kill() {
    if !has_tools("clients that reconnect", &["qemu-io"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "512M", "1G");
    let mut server = Some(place.serve(&["vol0"]));
    let uri = server.as_ref().unwrap().uri.clone();
    let socket = uri.rsplit_once("socket=").expect("a unix socket").1;
    let drive =
        format!("driver=nbd,server.type=unix,server.path={socket},export=vol0,reconnect-delay=60");
    let mut client = Command::new("qemu-io");
    client.args(["--image-opts", &drive]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.spawn().unwrap();
    let mut orders = client.stdin.take().unwrap();
    let mut said = BufReader::new(client.stdout.take().unwrap());
    let mut heard = String::new();
    let mut hear = |what: &str| {
        while !heard.contains(what) {
            let before = heard.len();
            said.read_line(&mut heard).unwrap();
            let wrong = heard.contains("rror") || heard.contains("failed");
            assert!(heard.len() > before && !wrong, "{what}: {heard}");
        }
        heard.clear();
    };
    for (round, killed) in [(1, true), (2, false), (3, true)] {
        let at = round * 128;
        writeln!(orders, "write -P {round} {at}k 64k\nflush").unwrap();
        hear("wrote 65536/65536");
        let old = server.take().unwrap();
        if killed {
            old.kill();
        } else {
            assert_eq!(old.stop().code(), Some(0));
        }
        // Asked while nobody is there to answer.
        writeln!(orders, "write -P {round} {}k 64k", at + 64).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        server = Some(place.serve(&["vol0"]));
        hear("wrote 65536/65536");
        writeln!(orders, "read -P {round} {at}k 128k").unwrap();
        hear("read 131072/131072");
    }
    writeln!(orders, "quit").unwrap();
    assert!(client.wait().unwrap().success());
}

#[test]
fn a_server_whose_only_door_is_unmounted_by_somebody_ends_in_order() {
    let what = "a file that is unmounted by somebody";
    if !can_attach(what) || !has_tools(what, &["umount"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let unmount = || must(tool("umount").arg(place.path("mnt")));
    let said = || fs::read_to_string(place.path("said")).unwrap();
    let data = pattern(5, 1 << 20);
    let mut server = place.serve_saying(&["v", "--fuse", "mnt"], "said");
    let mut file = fs::OpenOptions::new().write(true).open(&server.uri).unwrap();
    file.write_all(&data).unwrap();
    drop(file);
    unmount();
    let ended = wait(&mut server.child).expect("it ends by itself");
    assert!(ended.success(), "{}", said());
    assert!(said().contains("mnt/v is not mounted any more"), "{}", said());
    assert!(said().contains("nobody can reach the volume any more: closing it"), "{}", said());
    assert_eq!(place.status("v")["state"], "offline");

    // Beside another door it goes on, and what it was closed with is there.
    let doors = ["v", "--fuse", "mnt", "--vhost-user", "v.vhost"];
    let mut server = place.serve_saying(&doors, "said");
    assert!(!said().contains("had not been closed in order"), "{}", said());
    let mut found = vec![0; data.len()];
    fs::File::open(place.path("mnt/v")).unwrap().read_exact(&mut found).unwrap();
    assert!(found == data, "what was written is lost");
    unmount();
    eventually("it notices", || said().contains("is not mounted any more"));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(server.child.try_wait().unwrap(), None, "{}", said());
    assert_eq!(place.status("v")["server"]["pid"], server.child.id());
    assert!(!said().contains("closing it"), "{}", said());
    assert!(server.stop().success());
    // And so it does for a command that it runs, whose end is its own.
    let script = "umount mnt && sleep 1 && exit 7";
    let said = place.bimetal(&["serve", "v", "--fuse", "mnt", "--run", script]);
    said.expect(7, &["is not mounted any more"]);
}

/// A file that nobody may change, root included, until this is dropped.
struct Immutable<'a>(&'a Path);

impl Immutable<'_> {
    fn new(path: &Path) -> Option<Immutable<'_>> {
        run(tool("chattr").arg("+i").arg(path)).status.success().then_some(Immutable(path))
    }
}

impl Drop for Immutable<'_> {
    fn drop(&mut self) {
        let _ = run(tool("chattr").arg("-i").arg(self.0));
    }
}

#[test]
fn a_server_that_cannot_write_that_it_ends_says_so_and_ends_in_order() {
    let what = "a server's record that cannot be written";
    if !has_tools(what, &["chattr"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let server = place.serve_saying(&["v"], "said");
    let record = place.path("conf/run/v.server");
    let Some(immutable) = Immutable::new(&record) else {
        skip(what, "chattr +i does not work here: it needs root and a file system that knows it");
        return;
    };
    assert!(server.stop().success());
    drop(immutable);
    let said = fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("cannot say that it ends") && said.contains("v.server"), "{said}");
    let again = place.bimetal(&["serve", "v", "--run", "true"]);
    assert!(again.code == 0 && !again.err.contains("had not been closed in order"), "{again:#?}");
}
