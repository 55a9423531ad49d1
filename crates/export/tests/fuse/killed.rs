//! What a killed server leaves behind, and how the next one takes it away.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use export::fuse::loop_device;

use crate::server::{LoopGuard, MountGuard, Server, possible, run};

/// Where the child is to serve; set only in the child.
const SERVE: &str = "BIMETAL_TEST_SERVE";

/// A server in a process of its own: this very test program, told to serve.
struct ChildServer(Child);

impl ChildServer {
    fn start(test: &str, directory: &Path) -> ChildServer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(SERVE, directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let served = lines.map_while(Result::ok).any(|line| line.contains("serving"));
        let server = ChildServer(child);
        assert!(served, "the child ended without serving");
        server
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// In the child: serves until killed.
    fn serve_if_child() {
        if let Some(directory) = std::env::var_os(SERVE) {
            let _server = Server::at(Path::new(&directory), |volume| volume, false).unwrap();
            println!("serving");
            // Ends by being killed, or with the parent's patience.
            std::thread::sleep(std::time::Duration::from_secs(120));
            std::process::exit(1);
        }
    }
}

impl Drop for ChildServer {
    fn drop(&mut self) {
        // Dead already unless the test failed early.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Detaches whatever is mounted on the directory when the test ends.
struct Detach<'a>(&'a Path);

impl Drop for Detach<'_> {
    fn drop(&mut self) {
        while rustix::mount::unmount(self.0, rustix::mount::UnmountFlags::DETACH).is_ok() {}
    }
}

#[test]
fn the_next_server_takes_a_dead_mount_away() {
    ChildServer::serve_if_child();
    if !possible("the_next_server_takes_a_dead_mount_away", &["FUSE", "root"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let _detach = Detach(directory.path());
    let mut child =
        ChildServer::start("killed::the_next_server_takes_a_dead_mount_away", directory.path());
    // The kernel remembers attributes; the check for death must not be taken in by that.
    std::fs::metadata(directory.path().join("volume")).unwrap();
    child.kill();
    assert!(File::open(directory.path().join("volume")).is_err());
    let server = Server::at(directory.path(), |volume| volume, false).unwrap();
    let told = server.recovered.as_deref().unwrap();
    assert!(told.contains("killed server"), "{told}");
    File::open(&server.file).unwrap();
}

#[test]
fn the_next_server_takes_a_dead_loop_device_away() {
    ChildServer::serve_if_child();
    let needs = ["FUSE", "root", "loop driver"];
    if !possible("the_next_server_takes_a_dead_loop_device_away", &needs) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let _detach = Detach(directory.path());
    let test = "killed::the_next_server_takes_a_dead_loop_device_away";
    let mut child = ChildServer::start(test, directory.path());
    let file = directory.path().join("volume");
    let device = LoopGuard::attach(&file, 512);
    child.kill();
    assert_eq!(loop_device::find_by_backing(&file).unwrap(), [device.0.as_path()]);
    let server = Server::at(directory.path(), |volume| volume, false).unwrap();
    let told = server.recovered.as_deref().unwrap();
    assert!(told.contains(device.0.to_str().unwrap()), "{told}");
    let left = loop_device::detach_from(&file, &device.0);
    assert!(left.is_err(), "nothing should be left to detach");
}

#[test]
fn a_file_system_on_a_dead_device_does_not_keep_the_next_server_away() {
    ChildServer::serve_if_child();
    let needs = ["FUSE", "root", "loop driver", "mkfs.ext4"];
    if !possible("a_file_system_on_a_dead_device", &needs) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let _detach = Detach(directory.path());
    let test = "killed::a_file_system_on_a_dead_device_does_not_keep_the_next_server_away";
    let mut child = ChildServer::start(test, directory.path());
    let device = LoopGuard::attach(&directory.path().join("volume"), 512);
    run("mkfs.ext4", &["-q", device.0.to_str().unwrap()]);
    let mounted = MountGuard::mount(&device.0);
    std::fs::write(mounted.path().join("lost"), "not synced").unwrap();
    child.kill();
    let server = Server::at(directory.path(), |volume| volume, false).unwrap();
    File::open(&server.file).unwrap();
    // The old device stays until its file system is unmounted, and then goes.
    let busy = loop_device::detach(&device.0).unwrap_err();
    assert!(busy.message.contains(mounted.path().to_str().unwrap()), "{busy}");
    drop(mounted);
    loop_device::detach(&device.0).unwrap();
}
