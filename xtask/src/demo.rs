//! `make run`: what bimetal is, shown on this machine in a few minutes.
//!
//! Two sparse files under `./run` become a fast (1 GiB) and a slow (8 GiB) drive of one volume;
//! it gets an ext4 file system and a real tree of files, is verified, stopped, started and
//! verified again. The volume stays; run it again and it is only verified.
//!
//! Where no block device can be made (no root and no sudo, or a kernel without FUSE or loop) the
//! same tree goes through NBD as a file system image.

use std::fs;
use std::io::{IsTerminal, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use crate::shell::{self, Outcome};

/// The tree is more than the fast drive holds, and small enough for a demonstration.
const TREE_BYTES_MAX: u64 = 2200 << 20;
const CHUNK_BYTES: usize = 1 << 20;

/// How the demonstration is run.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Take the volume away and remove ./run
    #[arg(long)]
    forget: bool,
}

/// Where everything is.
struct Stage {
    run: PathBuf,
    mount: PathBuf,
    manifest: PathBuf,
    bimetal: PathBuf,
}

/// A file of the tree: where it comes from and where it goes, relative to the root.
struct Item {
    source: PathBuf,
    target: PathBuf,
    bytes: u64,
}

/// Runs the demonstration, or takes it away.
pub fn run(arguments: &DemoArguments) -> Outcome {
    let run = shell::root().join("run");
    let stage =
        Stage { mount: run.join("mnt"), manifest: run.join("manifest"), bimetal: binary()?, run };
    if arguments.forget {
        return stage.forget();
    }
    let outcome = match stage.obstacle() {
        None => stage.play(),
        Some(obstacle) => {
            println!("No block device can be made here: {obstacle}.");
            println!("The same goes through NBD instead, with a file system image.\n");
            stage.play_over_nbd()
        }
    };
    if outcome.is_err() {
        // Whatever failed, nothing stays mounted; that failure is the one to tell.
        let _ = stage.leave();
    }
    outcome
}

fn binary() -> Outcome<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| shell::root().join("target"), |dir| shell::root().join(dir));
    let path = target.join("release/bimetal");
    if path.exists() { Ok(path) } else { Err("build it first: make build".to_owned()) }
}

impl Stage {
    fn bimetal(&self, words: &[&str]) -> std::process::Command {
        let mut command = shell::command_as_root(&self.bimetal);
        command.arg("--config-dir").arg(self.run.join("conf")).args(words);
        command
    }

    fn bimetal_run(&self, words: &[&str]) -> Outcome {
        println!("\n$ bimetal --config-dir run/conf {}", words.join(" "));
        shell::run(&mut self.bimetal(words))
    }

    /// Why no block device can be made here.
    fn obstacle(&self) -> Option<String> {
        let sudo = || shell::output(shell::command("sudo").arg("--version")).is_ok();
        if !shell::is_root() && !sudo() {
            return Some("it needs root or sudo".to_owned());
        }
        let devices = ["/dev/fuse", "/dev/loop-control"];
        let missing = devices.iter().find(|device| !Path::new(device).exists())?;
        Some(format!("{missing} is missing"))
    }

    /// Makes the volume unless it is there; says whether it was made.
    fn create(&self) -> Outcome<bool> {
        if self.run.join("conf/demo.toml").exists() {
            println!("The volume of an earlier run is still here: it is verified, not made again.");
            return Ok(false);
        }
        fs::create_dir_all(&self.run).map_err(|error| format!("./run: {error}"))?;
        self.bimetal_run(&[
            "create",
            "demo",
            "--fast",
            "run/fast.img:1G",
            "--slow",
            "run/slow.img:8G",
        ])?;
        Ok(true)
    }

    fn play(&self) -> Outcome {
        // Attaching says better what is still in the way.
        let _ = self.leave();
        self.create()?;
        let device = self.attach()?;
        if !self.manifest.exists() {
            // The file system belongs to us, so that copying needs no root.
            let owner = shell::output(shell::command("id").arg("-u"))?;
            let group = shell::output(shell::command("id").arg("-g"))?;
            let owner = format!("root_owner={}:{}", owner.trim(), group.trim());
            println!("\n$ mkfs.ext4 {device}");
            shell::run(
                shell::command_as_root("mkfs.ext4").args(["-q", "-F", "-E", &owner, &device]),
            )?;
            self.mount(&device)?;
            let tree = tree()?;
            let manifest = copy(&tree, &self.mount)?;
            // Unmounted before verifying: what is read back must come from the volume.
            self.unmount()?;
            fs::write(&self.manifest, manifest).map_err(|error| format!("./run: {error}"))?;
        }
        self.mount(&device)?;
        verify(&self.manifest, &self.mount, "verifying")?;
        self.bimetal_run(&["status", "demo"])?;
        println!("\nStopping the server and starting it again.");
        self.unmount()?;
        self.bimetal_run(&["detach", "demo"])?;
        self.bimetal_run(&["check", "demo"])?;
        let device = self.attach()?;
        self.mount(&device)?;
        verify(&self.manifest, &self.mount, "verifying after the restart")?;
        self.unmount()?;
        self.bimetal_run(&["status", "demo"])?;
        self.bimetal_run(&["detach", "demo"])?;
        println!(
            "\nEvery file is as it was. The volume stays in ./run; three things to try next:\n\
             \x20 sudo {bimetal} --config-dir run/conf attach demo     # a block device of your own\n\
             \x20 {bimetal} --config-dir run/conf serve demo --run 'nbdinfo --map=bimetal:tier $uri'\n\
             \x20 {bimetal} create mine --fast /dev/FAST --slow /dev/SLOW --dry-run\n\
             'make run' verifies it again; 'make clean' takes it away.",
            bimetal = self.bimetal.strip_prefix(shell::root()).unwrap_or(&self.bimetal).display()
        );
        Ok(())
    }

    /// The same tree as an image of a file system, written and read back over NBD.
    fn play_over_nbd(&self) -> Outcome {
        self.create()?;
        let image = self.run.join("image.ext4");
        if !image.exists() {
            println!("\nMaking a file system image of /usr/share.");
            let mut make = shell::command("mkfs.ext4");
            make.args(["-q", "-F", "-d", "/usr/share"]).arg(&image).arg("2G");
            shell::run(&mut make)?;
            self.bimetal_run(&[
                "serve",
                "demo",
                "--run",
                "nbdcopy --progress --flush run/image.ext4 \"$uri\"",
            ])?;
        }
        let script = "nbdcopy \"$uri\" - | head -c $(stat -c %s run/image.ext4) | \
                      cmp - run/image.ext4 && echo every byte is as it was";
        self.bimetal_run(&["serve", "demo", "--run", script])?;
        self.bimetal_run(&["check", "demo"])?;
        self.bimetal_run(&[
            "serve",
            "demo",
            "--run",
            "nbdinfo --map=bimetal:tier --totals \"$uri\"",
        ])
    }

    fn attach(&self) -> Outcome<String> {
        println!("\n$ bimetal --config-dir run/conf attach demo");
        let device = shell::output(&mut self.bimetal(&["attach", "demo"]))?.trim().to_owned();
        println!("{device}");
        Ok(device)
    }

    fn mount(&self, device: &str) -> Outcome {
        fs::create_dir_all(&self.mount).map_err(|error| format!("./run/mnt: {error}"))?;
        println!("\n$ mount {device} run/mnt");
        shell::run(shell::command_as_root("mount").arg(device).arg(&self.mount))
    }

    fn unmount(&self) -> Outcome {
        println!("\n$ umount run/mnt");
        shell::run(shell::command_as_root("umount").arg(&self.mount))
    }

    /// Unmounts and detaches what may still be up, without a word when nothing is.
    fn leave(&self) -> Outcome {
        let mounted = shell::output(shell::command("mountpoint").arg("-q").arg(&self.mount));
        if mounted.is_ok() {
            shell::output(shell::command_as_root("umount").arg(&self.mount))?;
        }
        if self.run.join("conf/demo.toml").exists() {
            shell::output(&mut self.bimetal(&["detach", "demo"]))?;
        }
        Ok(())
    }

    /// Takes the volume away. Nothing is touched while somebody else uses it.
    fn forget(&self) -> Outcome {
        let elsewhere = self.mounted_elsewhere()?;
        if !elsewhere.is_empty() {
            return Err(format!(
                "the demonstration's volume is mounted at {}: unmount it first (nothing was touched)",
                elsewhere.join(", ")
            ));
        }
        let left = self.leave();
        if self.run.join("conf/demo.toml").exists() {
            // Refused while anybody uses the volume or its drives, whatever detaching said: that it
            // was not attached is no obstacle.
            shell::output(&mut self.bimetal(&["destroy", "demo", "--yes"])).map_err(|refusal| {
                let why = left.err().map(|failure| format!("{failure}\n")).unwrap_or_default();
                format!("{why}{refusal}\n./run stays as it is")
            })?;
        }
        shell::run(shell::command_as_root("rm").args(["-rf", "--one-file-system"]).arg(&self.run))
    }
}

impl Stage {
    /// Where the volume's devices are mounted, beside the demonstration's own place.
    fn mounted_elsewhere(&self) -> Outcome<Vec<String>> {
        let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
        let ours = devices.map(|device| device.path()).filter(|device| {
            let backing = fs::read_to_string(device.join("loop/backing_file"));
            backing.is_ok_and(|backing| Path::new(backing.trim_end()).starts_with(&self.run))
        });
        let numbers: Vec<String> = ours.flat_map(|device| numbers(&device)).collect();
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        // 36 35 98:0 /root /mount/point options - type source options
        let mounts = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(2);
            let (number, place) = (fields.next()?, fields.nth(1)?.replace("\\040", " "));
            numbers.iter().any(|ours| ours == number).then_some(place)
        });
        Ok(mounts.filter(|place| Path::new(place) != self.mount).collect())
    }
}

/// `MAJOR:MINOR` of a device in sysfs and of its partitions.
fn numbers(device: &Path) -> Vec<String> {
    let parts = fs::read_dir(device).into_iter().flatten().flatten().map(|entry| entry.path());
    let all = std::iter::once(device.to_owned()).chain(parts);
    all.filter_map(|path| fs::read_to_string(path.join("dev")).ok())
        .map(|number| number.trim().to_owned())
        .collect()
}

/// What is copied: the machine's own documentation and data, and the Rust toolchain.
fn tree() -> Outcome<Vec<Item>> {
    let sysroot = shell::output(shell::command("rustc").args(["--print", "sysroot"]))?;
    let roots = [(PathBuf::from("/usr/share"), "share"), (PathBuf::from(sysroot.trim()), "rust")];
    let mut items = Vec::new();
    let mut total = 0;
    for (root, name) in roots {
        walk(&root, Path::new(name), &mut items, &mut total);
    }
    Ok(items)
}

/// Collects what can be read, until the tree is large enough.
fn walk(source: &Path, target: &Path, items: &mut Vec<Item>, total: &mut u64) {
    let mut entries: Vec<_> = fs::read_dir(source).into_iter().flatten().flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let Ok(facts) = entry.metadata() else { continue };
        let (source, target) = (entry.path(), target.join(entry.file_name()));
        if facts.is_dir() {
            walk(&source, &target, items, total);
        } else if facts.is_symlink() || facts.is_file() && fs::File::open(&source).is_ok() {
            if *total + facts.len() > TREE_BYTES_MAX {
                continue;
            }
            *total += facts.len();
            items.push(Item { source, target, bytes: facts.len() });
        }
    }
}

/// Copies the tree; gives a line per file: its SHA-256 and its name.
fn copy(tree: &[Item], mount: &Path) -> Outcome<String> {
    let total = tree.iter().map(|item| item.bytes).sum();
    println!("\nCopying {} files of /usr/share and the Rust toolchain.", tree.len());
    let mut progress = Progress::new("copying", total);
    let mut manifest = String::new();
    for item in tree {
        let to = mount.join(&item.target);
        let failed = |error: std::io::Error| format!("{}: {error}", to.display());
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        if item.source.is_symlink() {
            let link = fs::read_link(&item.source).map_err(failed)?;
            symlink(link, &to).map_err(failed)?;
        } else {
            fs::copy(&item.source, &to).map_err(failed)?;
            // Of the source: that is what must come back.
            let sum = sum(&item.source, &mut progress)?;
            manifest.push_str(&format!("{sum}  {}\n", item.target.display()));
        }
    }
    progress.finish();
    println!("$ sync");
    shell::run(&mut shell::command("sync"))?;
    Ok(manifest)
}

/// Compares every file with the manifest.
fn verify(manifest: &Path, mount: &Path, what: &'static str) -> Outcome {
    let text = fs::read_to_string(manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let entries: Vec<(&str, PathBuf)> = text
        .lines()
        .filter_map(|line| line.split_once("  "))
        .map(|(sum, name)| (sum, mount.join(name)))
        .collect();
    let bytes = |path: &PathBuf| path.metadata().map_or(0, |facts| facts.len());
    let total = entries.iter().map(|(_, path)| bytes(path)).sum();
    let mut progress = Progress::new(what, total);
    for (expected, path) in &entries {
        if sum(path, &mut progress)? != *expected {
            return Err(format!("{} has changed", path.display()));
        }
    }
    progress.finish();
    println!("{} files verified by SHA-256.", entries.len());
    Ok(())
}

fn sum(path: &Path, progress: &mut Progress) -> Outcome<String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = fs::File::open(path).map_err(failed)?;
    let mut hasher = Sha256::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = file.read(&mut chunk).map_err(failed)?;
        if count == 0 {
            break;
        }
        hasher.update(&chunk[..count]);
        progress.add(count as u64);
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Progress for people at a terminal, and a line per tenth for logs.
struct Progress {
    bar: ProgressBar,
    what: &'static str,
    total: u64,
    done: u64,
    tenths: u64,
    shown: bool,
}

impl Progress {
    fn new(what: &'static str, total: u64) -> Progress {
        let bar = ProgressBar::new(total);
        let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.expect("a constant template is valid"));
        bar.set_message(what);
        let shown = std::io::stderr().is_terminal();
        Progress { bar, what, total, done: 0, tenths: 0, shown }
    }

    fn add(&mut self, bytes: u64) {
        self.done += bytes;
        self.bar.inc(bytes);
        let tenths = self.done * 10 / self.total.max(1);
        if !self.shown && tenths > self.tenths {
            self.tenths = tenths;
            println!("{} {}%", self.what, tenths * 10);
        }
    }

    fn finish(&self) {
        self.bar.finish();
    }
}
