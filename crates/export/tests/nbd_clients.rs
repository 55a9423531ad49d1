//! Other people's NBD clients against our server.

use std::process::Command;

use export::nbd::NbdOptions;
use io::{ErrorKind, IoError, Place};

mod memory;
mod nbd_server;

use memory::MemoryVolume;
use nbd_server::{Server, has, nbdsh, noise, run, script, succeed};

const MIB: u64 = 1 << 20;

fn named() -> NbdOptions {
    NbdOptions {
        export_name: "disk".into(),
        description: "a disk for tests".into(),
        ..NbdOptions::default()
    }
}

/// Nothing may stay behind when the clients have gone.
fn assert_clean(server: Server) -> memory::Counts {
    let report = server.stop();
    assert_eq!((report.connections, report.leaked_bytes), (0, 0), "{report:?}");
    report.counts
}

#[test]
fn nbdinfo_sees_what_is_advertised() {
    if !has("nbdinfo") {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), 64 * MIB), named()));
    let text = succeed(Command::new("nbdinfo").arg("--json").arg(server.uri()));
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let export = &json["exports"][0];
    assert_eq!(export["export-size"], 64 * MIB);
    assert_eq!(export["description"], "a disk for tests");
    for (name, expected) in [
        ("is_read_only", false),
        ("can_multi_conn", true),
        ("can_flush", true),
        ("can_fua", true),
        ("can_trim", true),
        ("can_zero", true),
        ("can_fast_zero", true),
        ("can_cache", true),
        ("can_df", true),
    ] {
        assert_eq!(export[name], expected, "{name}");
    }
    assert_eq!(export["block_size_minimum"], 512);
    assert_eq!(export["block_size_maximum"], 32 * MIB);
    let list = succeed(Command::new("nbdinfo").arg("--list").arg(server.uri()));
    assert!(list.contains("export=\"disk\"") && list.contains("bimetal:tier"), "{list}");
    assert_clean(server);
}

#[test]
fn a_read_only_export_says_so_and_refuses_writes() {
    if !has("nbdinfo") || nbdsh().is_none() {
        return;
    }
    let server = Server::start_with(|io| {
        (MemoryVolume::new(io.clone(), MIB), NbdOptions { read_only: true, ..named() })
    });
    succeed(Command::new("nbdinfo").arg("--is").arg("read-only").arg(server.uri()));
    let code = "import errno\nh.set_strict_mode(0)\n\
                try:\n h.pwrite(b'x' * 512, 0)\n raise SystemExit(1)\n\
                except nbd.Error as error:\n assert error.errnum == errno.EPERM\n\
                assert h.pread(512, 0) == bytes(512)";
    succeed(nbdsh().unwrap().args(["-u", &server.uri(), "-c", code]));
    assert_eq!(assert_clean(server).writes, 0);
}

#[test]
fn nbdinfo_maps_holes_and_tiers() {
    if !has("nbdinfo") || nbdsh().is_none() {
        return;
    }
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), MIB);
        volume.place_of.set(|block| match block {
            0..4 => Place::Fast,
            4..8 => Place::Slow,
            _ => Place::Log,
        });
        (volume, named())
    });
    let code = "h.pwrite(b'x' * 49152, 0)";
    succeed(nbdsh().unwrap().args(["-u", &server.uri(), "-c", code]));
    let map = |context: &str| -> Vec<(u64, u64, u64)> {
        let text = succeed(
            Command::new("nbdinfo").arg(format!("--map={context}")).arg("--json").arg(server.uri()),
        );
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let number = |row: &serde_json::Value, name: &str| row[name].as_u64().unwrap();
        json.as_array()
            .unwrap()
            .iter()
            .map(|row| (number(row, "offset"), number(row, "length"), number(row, "type")))
            .collect()
    };
    assert_eq!(map("base:allocation"), [(0, 49152, 0), (49152, MIB - 49152, 3)]);
    let tiers = [(0, 16384, 0), (16384, 16384, 1), (32768, 16384, 2), (49152, MIB - 49152, 3)];
    assert_eq!(map("bimetal:tier"), tiers);
    assert_clean(server);
}

#[test]
fn nbdcopy_brings_back_what_it_took_there() {
    if !has("nbdcopy") {
        return;
    }
    // Cut small, so that requests have parts.
    for transfer_max in [64 << 10, 1 << 20] {
        let server = Server::start_with(move |io| {
            let volume = MemoryVolume::new(io.clone(), 32 * MIB).with_transfer_max(transfer_max);
            (volume, named())
        });
        let mut image = noise(1, 32 * MIB as usize);
        image[5 << 20..9 << 20].fill(0);
        image[100..70_000].fill(0);
        let (there, back) = (server.file("there"), server.file("back"));
        std::fs::write(&there, &image).unwrap();
        succeed(Command::new("nbdcopy").arg("--flush").arg(&there).arg(server.uri()));
        succeed(Command::new("nbdcopy").arg(server.uri()).arg(&back));
        assert!(std::fs::read(&back).unwrap() == image, "the copy differs");
        let single = ["--synchronous", "--connections=1", "--request-size=33554432"];
        std::fs::remove_file(&back).unwrap();
        succeed(Command::new("nbdcopy").args(single).arg(server.uri()).arg(&back));
        assert!(std::fs::read(&back).unwrap() == image, "the copy in large requests differs");
        assert!(assert_clean(server).flushes > 0);
    }
}

#[test]
fn nbdsh_finds_every_command_and_flag() {
    if nbdsh().is_none() {
        return;
    }
    for transfer_max in [4096, 1 << 20] {
        let server = Server::start_with(move |io| {
            let volume = MemoryVolume::new(io.clone(), 8 * MIB).with_transfer_max(transfer_max);
            (volume, named())
        });
        script("commands.py", &server.uri());
        let counts = assert_clean(server);
        assert!(counts.durable > 0 && counts.flushes > 0 && counts.caches == 1, "{counts:?}");
    }
}

#[test]
fn requests_that_wait_in_the_volume_are_answered_as_they_end() {
    if nbdsh().is_none() {
        return;
    }
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), 8 * MIB);
        volume.delay_ns.set(io::units::MILLISECOND_NS);
        // Fewer places than the script has requests: the rest waits in the socket.
        (volume, NbdOptions { in_flight_max: 7, in_flight_bytes_max: 64 << 10, ..named() })
    });
    script("commands.py", &server.uri());
    assert_clean(server);
}

#[test]
fn an_old_client_is_served_with_simple_replies() {
    if nbdsh().is_none() {
        return;
    }
    for transfer_max in [4096, 1 << 20] {
        let server = Server::start_with(move |io| {
            let volume = MemoryVolume::new(io.clone(), 8 * MIB).with_transfer_max(transfer_max);
            (volume, named())
        });
        script("simple.py", &server.uri());
        assert_clean(server);
    }
}

#[test]
fn options_are_answered_one_by_one() {
    if nbdsh().is_none() {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), MIB), named()));
    script("haggle.py", &server.uri());
    assert_clean(server);
}

#[test]
fn a_failing_volume_fails_requests_and_not_the_connection() {
    if nbdsh().is_none() {
        return;
    }
    for (kind, name) in [(ErrorKind::Io, "EIO"), (ErrorKind::NoSpace, "ENOSPC")] {
        let server = Server::start_with(move |io| {
            let volume = MemoryVolume::new(io.clone(), 8 * MIB).with_transfer_max(4096);
            *volume.failure.borrow_mut() = Some(IoError::new(kind, "the drive is on fire"));
            (volume, named())
        });
        for structured in ["True", "False"] {
            let code = format!(
                "import errno\nh.set_request_structured_replies({structured})\n\
                 h.connect_uri('{}')\n\
                 for call in (lambda: h.pread(512, 0), lambda: h.pread(32768, 0),\n\
                 \x20            lambda: h.pwrite(bytes(1 << 20), 0), h.flush,\n\
                 \x20            lambda: h.zero(4096, 0), lambda: h.trim(4096, 0)) * 3:\n\
                 \x20   try:\n        call()\n        raise SystemExit('no error')\n\
                 \x20   except nbd.Error as error:\n        assert error.errnum == errno.{name}\n",
                server.uri()
            );
            succeed(nbdsh().unwrap().args(["-c", &code]));
        }
        assert_clean(server);
    }
}

#[test]
fn qemu_reads_and_writes_in_every_alignment() {
    if !has("qemu-io") || !has("qemu-img") {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), 32 * MIB), named()));
    let url = format!("nbd+unix:///disk?socket={}", server.socket().display());
    let mut command = Command::new("qemu-io");
    command.args(["-f", "raw", "-t", "none"]).arg(&url);
    for step in [
        "write -P 1 0 4M",
        // Not aligned to anything: qemu must read, modify and write.
        "write -P 2 12345 6789",
        "read -P 1 0 12345",
        "read -P 2 12345 6789",
        "read -P 1 19134 4000",
        "write -z -u 64k 64k",
        "read -P 0 64k 64k",
        "write -z 256k 8k",
        "read -P 0 256k 8k",
        "discard 1M 1M",
        "read -P 0 1M 1M",
        "flush",
        "write -f -P 9 3M 512",
        "read -P 9 3M 512",
    ] {
        command.args(["-c", step]);
    }
    for block in 0..64 {
        let step = format!("aio_write -P {} {} 60k", block + 10, (8 << 20) + block * 65536);
        command.args(["-c", &step]);
    }
    command.args(["-c", "aio_flush"]);
    for block in 0..64 {
        let step = format!("aio_read -P {} {} 60k", block + 10, (8 << 20) + block * 65536);
        command.args(["-c", &step]);
    }
    command.args(["-c", "aio_flush"]);
    let text = succeed(&mut command);
    assert!(!text.contains("verification failed") && !text.contains("rror"), "{text}");

    let (image, back) = (server.file("image"), server.file("back"));
    std::fs::write(&image, noise(2, 32 * MIB as usize)).unwrap();
    succeed(Command::new("qemu-img").args(["convert", "-n", "-O", "raw"]).arg(&image).arg(&url));
    succeed(Command::new("qemu-img").args(["compare"]).arg(&image).arg(&url));
    succeed(Command::new("qemu-img").args(["convert", "-O", "raw"]).arg(&url).arg(&back));
    assert!(std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap());
    let map = succeed(Command::new("qemu-img").args(["map", "--output=json"]).arg(&url));
    assert!(map.contains("\"data\": true"), "{map}");
    assert_clean(server);
}

#[test]
fn fio_verifies_what_it_wrote_in_mixed_sizes() {
    if !has("fio") {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), 64 * MIB), named()));
    succeed(Command::new("fio").current_dir(server.file("")).args([
        "--name=verify",
        "--ioengine=nbd",
        &format!("--uri={}", server.uri()),
        "--rw=randwrite",
        "--bsrange=512-256k",
        "--blockalign=512",
        "--iodepth=32",
        "--size=64M",
        "--io_size=96M",
        "--norandommap=0",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--fsync=64",
        "--randseed=7",
    ]));
    assert!(assert_clean(server).flushes > 0);
}

#[test]
fn nbdkit_stands_between_two_clients() {
    if !has("nbdkit") || !has("nbdcopy") {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), 16 * MIB), named()));
    let (there, back) = (server.file("there"), server.file("back"));
    std::fs::write(&there, noise(3, 16 * MIB as usize)).unwrap();
    let steps = format!(
        "nbdcopy {} \"$uri\" && nbdcopy \"$uri\" {} && nbdinfo --map \"$uri\"",
        there.display(),
        back.display()
    );
    let socket = format!("socket={}", server.socket().display());
    let text = succeed(Command::new("nbdkit").args([
        "-U",
        "-",
        "nbd",
        &socket,
        "export=disk",
        "--run",
        &steps,
    ]));
    assert!(std::fs::read(&there).unwrap() == std::fs::read(&back).unwrap());
    assert!(text.contains("data"), "{text}");
    assert_clean(server);
}

#[test]
fn an_unknown_export_is_refused_with_a_message() {
    if !has("nbdinfo") {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), MIB), named()));
    let uri = format!("nbd+unix:///other?socket={}", server.socket().display());
    let output = run(Command::new("nbdinfo").arg(uri));
    assert!(!output.status.success());
    assert_clean(server);
}

#[test]
fn unix_socket_and_tcp_are_doors_to_the_same_volume() {
    if !has("nbdcopy") {
        return;
    }
    let server = Server::start_with(|io| (MemoryVolume::new(io.clone(), 16 * MIB), named()));
    let tcp = format!("nbd://{}/disk", server.tcp);
    let (there, back) = (server.file("there"), server.file("back"));
    std::fs::write(&there, noise(4, 16 * MIB as usize)).unwrap();
    succeed(Command::new("nbdcopy").args(["--connections=8"]).arg(&there).arg(&tcp));
    succeed(Command::new("nbdcopy").arg(server.uri()).arg(&back));
    assert!(std::fs::read(&there).unwrap() == std::fs::read(&back).unwrap());
    assert_clean(server);
}
