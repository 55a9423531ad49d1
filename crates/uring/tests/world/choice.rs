//! Which backend is taken, and what is said about it.

use uring::{Backend, Kernel, KernelOptions};

fn describe(backend: Backend) -> String {
    let options = KernelOptions { backend, arena_bytes: 1 << 20, ring_entries: 16 };
    let (_io, kernel) = Kernel::start(options).expect("a backend");
    kernel.describe()
}

#[test]
fn the_backend_asked_for_is_described() {
    assert!(describe(Backend::Ring).starts_with("io_uring, 1M of "), "{}", describe(Backend::Ring));
    assert_eq!(describe(Backend::Threads), "pool of 8 threads: as asked");
}

/// On this thread, makes `io_uring_setup` fail as a container's filter does.
fn forbid_io_uring() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let setup = libc::SYS_io_uring_setup as u32;
    let mut program = [
        // The number of the system call is the first word of what the filter sees.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: setup,
        },
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: both calls only read their arguments, which live until they return; the filter
    // binds this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn threads_stand_in_where_io_uring_is_forbidden() {
    let (automatic, demanded) = std::thread::spawn(|| {
        forbid_io_uring();
        let options = KernelOptions { backend: Backend::Ring, ..KernelOptions::default() };
        (describe(Backend::Auto), Kernel::start(options).err())
    })
    .join()
    .unwrap();
    assert_eq!(
        automatic,
        "pool of 8 threads: io_uring is forbidden here (by a seccomp filter or security module)"
    );
    let error = demanded.expect("the ring cannot be had");
    assert!(error.message.contains("forbidden"), "{error}");
}

/// A fact for the test below, which runs it in a process of its own.
#[test]
fn the_automatic_choice_is_described() {
    let description = describe(Backend::Auto);
    println!("[{description}]");
    assert!(!description.is_empty());
}

#[test]
fn the_environment_overrules_the_automatic_choice() {
    let describe_with = |value: &str| {
        let program = std::env::current_exe().expect("the path of this test");
        let output = std::process::Command::new(program)
            .args(["--exact", "world::choice::the_automatic_choice_is_described", "--nocapture"])
            .env("BIMETAL_IO", value)
            .output()
            .expect("this test runs itself");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&text).into_owned()
    };
    let threads = describe_with("threads");
    assert!(threads.contains("[pool of 8 threads: BIMETAL_IO asks for it]"), "{threads}");
    let ring = describe_with("ring");
    assert!(ring.contains("[io_uring, "), "{ring}");
    let nonsense = describe_with("smoke");
    assert!(nonsense.contains("BIMETAL_IO is 'smoke' (use 'ring' or 'threads')"), "{nonsense}");
}
