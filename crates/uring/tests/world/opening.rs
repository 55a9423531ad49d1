//! Opening drives: who may, what is known of them, and what is said when it cannot be.

use std::os::unix::fs::PermissionsExt;

use io::ErrorKind;
use uring::{Access, Backend};

use crate::world::scratch::Scratch;
use crate::{on_both, start};

on_both!(
    a_drive_in_use_is_refused,
    readers_share_a_file,
    a_drive_is_free_again_when_its_world_has_ended,
    a_drive_opened_for_reading_refuses_writes,
    what_is_no_drive_is_refused_with_its_name,
    the_facts_of_a_file_are_found,
);

fn a_drive_in_use_is_refused(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (_io, kernel) = start(backend);
    let first = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let error = kernel.open_device(&file.path(), access).err().expect("it is in use");
        assert!(error.message.contains("in use"), "{error}");
        assert!(error.message.contains("drive.img"), "{error}");
    }
    drop(first);
}

fn readers_share_a_file(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (_io, kernel) = start(backend);
    let _first = kernel.open_device(&file.path(), Access::ReadOnly).unwrap();
    let _second = kernel.open_device(&file.path(), Access::ReadOnly).unwrap();
    let error = kernel.open_device(&file.path(), Access::ReadWrite).err().expect("it is read");
    assert!(error.message.contains("in use"), "{error}");
}

fn a_drive_is_free_again_when_its_world_has_ended(backend: Backend) {
    let file = Scratch::new(1 << 20);
    for round in 0..30 {
        let (io, kernel) = start(backend);
        let device = kernel.open_device(&file.path(), Access::ReadWrite);
        let device = device.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let _ = io.block_on(device.read(0, io.pool().take(4096)));
        drop(device.write(0, io.pool().take(4096)));
    }
}

fn a_drive_opened_for_reading_refuses_writes(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let mut permissions = std::fs::metadata(file.path()).unwrap().permissions();
    permissions.set_mode(0o444);
    std::fs::set_permissions(file.path(), permissions).unwrap();
    let (io, kernel) = start(backend);
    let error = kernel.open_device(&file.path(), Access::ReadWrite).err().expect("it is read-only");
    assert_eq!(error.kind, ErrorKind::ReadOnly, "{error}");
    assert!(error.message.contains("read-only"), "{error}");
    let device = kernel.open_device(&file.path(), Access::ReadOnly).unwrap();
    assert!(device.info().read_only);
    io.block_on(async {
        device.read(0, io.pool().take(4096)).await.1.unwrap();
        let write = device.write(0, io.pool().take(4096)).await.1;
        assert_eq!(write.unwrap_err().kind, ErrorKind::ReadOnly);
        assert_eq!(device.trim(0, 4096).await.unwrap_err().kind, ErrorKind::ReadOnly);
        assert_eq!(device.write_zeroes(0, 4096).await.unwrap_err().kind, ErrorKind::ReadOnly);
    });
}

fn what_is_no_drive_is_refused_with_its_name(backend: Backend) {
    let file = Scratch::new(0);
    let (_io, kernel) = start(backend);
    let pipe = file.beside("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).unwrap();
    let directory = file.beside("");
    let cases = [
        (file.path(), "is empty"),
        (file.beside("absent.img"), "is not there"),
        (directory, "is a directory"),
        (pipe, "is a pipe"),
        ("/dev/null".into(), "is a character device"),
    ];
    for (path, reason) in cases {
        let error = kernel.open_device(&path, Access::ReadWrite).err().expect("it is no drive");
        let expected = format!("{} {reason}", path.display());
        assert!(error.message.starts_with(&expected), "{error}, not '{expected}'");
    }
}

fn the_facts_of_a_file_are_found(backend: Backend) {
    let file = Scratch::new(1 << 20);
    let (_io, kernel) = start(backend);
    let device = kernel.open_device(&file.path(), Access::ReadWrite).unwrap();
    let info = device.info();
    assert_eq!(info.path, file.path().display().to_string());
    assert_eq!(info.size_bytes, 1 << 20);
    assert!([512, 4096].contains(&info.sector_bytes), "{info:?}");
    assert!((512..=4096).contains(&info.atomic_write_bytes), "{info:?}");
    assert!(!info.read_only);
}
