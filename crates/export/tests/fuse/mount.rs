//! Mounting and unmounting: what is in the way, who is in the way.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use export::fuse::{Unmount, mounted_at};

use crate::server::{Server, possible};

#[test]
fn unmounting_a_used_file_names_its_user_and_leaves_it_served() {
    if !possible("unmounting_a_used_file", &["FUSE"]) {
        return;
    }
    let server = Server::start();
    assert_eq!(mounted_at(&server.directory).unwrap().as_deref(), Some("volume"));
    let file = OpenOptions::new().read(true).write(true).open(&server.file).unwrap();
    let busy = server.unmount(Unmount::WhenUnused).unwrap_err();
    let me = format!("process {}", std::process::id());
    assert!(busy.message.contains(&me), "{busy}");
    file.write_all_at(b"still served", 0).unwrap();
    drop(file);
    server.unmount(Unmount::WhenUnused).unwrap();
    assert_eq!(mounted_at(&server.directory).unwrap(), None);
    // Once more does no harm.
    server.unmount(Unmount::WhenUnused).unwrap();
}

#[test]
fn a_detached_file_is_served_until_it_is_closed() {
    if !possible("a_detached_file", &["FUSE"]) {
        return;
    }
    let server = Server::start();
    let file = OpenOptions::new().read(true).write(true).open(&server.file).unwrap();
    server.unmount(Unmount::Detach).unwrap();
    assert!(!server.file.exists());
    file.write_all_at(b"still served", 0).unwrap();
    let mut found = [0; 12];
    file.read_exact_at(&mut found, 0).unwrap();
    assert_eq!(&found, b"still served");
}

#[test]
fn places_that_cannot_be_mounted_on_are_refused_with_the_reason() {
    if !possible("places_that_cannot_be_mounted_on", &["FUSE"]) {
        return;
    }
    let refusal = |path: &std::path::Path| match Server::at(path, |volume| volume, false) {
        Ok(_) => panic!("mounted on {}", path.display()),
        Err(error) => error.message,
    };
    let directory = tempfile::tempdir().unwrap();
    let missing = refusal(&directory.path().join("missing"));
    assert!(missing.contains("no such directory"), "{missing}");
    let file = directory.path().join("file");
    File::create(&file).unwrap();
    let not_directory = refusal(&file);
    assert!(not_directory.contains("not a directory"), "{not_directory}");
    let server = Server::start();
    let twice = refusal(&server.directory);
    assert!(twice.contains("volume 'volume' is being served there already"), "{twice}");
    // A relative path and a symbolic link lead to the same place.
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&server.directory, &link).unwrap();
    assert_eq!(refusal(&link), twice);
    let foreign = refusal(std::path::Path::new("/proc"));
    assert!(foreign.contains("(proc) is mounted there"), "{foreign}");
}

#[test]
fn a_mount_someone_else_removed_ends_the_door_and_its_successor_stays() {
    if !possible("a_mount_someone_else_removed", &["FUSE", "root"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let first = Server::at(directory.path(), |volume| volume, false).unwrap();
    rustix::mount::unmount(&first.directory, rustix::mount::UnmountFlags::empty()).unwrap();
    // Returns at once, because there is nothing left to unmount and everything is answered.
    first.unmount(Unmount::WhenUnused).unwrap();
    let second = Server::at(directory.path(), |volume| volume, false).unwrap();
    first.unmount(Unmount::Detach).unwrap();
    drop(first);
    File::open(&second.file).unwrap();
}

#[test]
fn what_somebody_else_mounted_there_meanwhile_stays() {
    if !possible("what_somebody_else_mounted_there", &["FUSE", "root"]) {
        return;
    }
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let directory = tempfile::tempdir().unwrap();
    let server = Server::at(directory.path(), |volume| volume, false).unwrap();
    let held = File::open(&server.file).unwrap();
    unmount(&server.directory, UnmountFlags::DETACH).unwrap();
    mount("none", &server.directory, "tmpfs", MountFlags::empty(), None).unwrap();
    std::fs::write(server.directory.join("theirs"), "data").unwrap();
    // The file is still open, which is said and waited for; what lies there now is not touched.
    let refused = server.unmount(Unmount::WhenUnused).unwrap_err();
    assert!(refused.message.contains("still open"), "{refused}");
    drop(held);
    server.unmount(Unmount::WhenUnused).unwrap();
    server.unmount(Unmount::Detach).unwrap();
    assert_eq!(std::fs::read(server.directory.join("theirs")).unwrap(), b"data");
    unmount(&server.directory, UnmountFlags::empty()).unwrap();
}
