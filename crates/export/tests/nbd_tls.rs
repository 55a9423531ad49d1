//! TLS as the usual clients speak it (GnuTLS, through libnbd and QEMU).

use std::path::{Path, PathBuf};
use std::process::Command;

use export::nbd::{ClientCertificates, NbdOptions, Tls};

mod memory;
mod nbd_server;

use memory::MemoryVolume;
use nbd_server::{Server, has, nbdsh, noise, run, succeed};

const MIB: u64 = 1 << 20;

fn serve(tls: impl FnOnce() -> Tls + Send + 'static) -> Server {
    Server::start_with(move |io| {
        let options =
            NbdOptions { export_name: "disk".into(), tls: Some(tls()), ..NbdOptions::default() };
        (MemoryVolume::new(io.clone(), 16 * MIB), options)
    })
}

/// A certificate authority, and certificates of a server and a client, as the usual tool makes
/// them.
fn make_certificates(directory: &Path) {
    let file = |name: &str| directory.join(name);
    let template = |name: &str, text: &str| std::fs::write(file(name), text).unwrap();
    template("ca.info", "cn = Test\nca\ncert_signing_key\n");
    template(
        "server.info",
        "cn = localhost\ndns_name = localhost\ntls_www_server\nsigning_key\nencryption_key\n",
    );
    template("client.info", "cn = client\ntls_www_client\nsigning_key\nencryption_key\n");
    for name in ["ca", "server", "client"] {
        let mut command = Command::new("certtool");
        command.args(["--generate-privkey", "--key-type=ecdsa", "--outfile"]);
        succeed(command.arg(file(&format!("{name}-key.pem"))));
        let mut command = Command::new("certtool");
        if name == "ca" {
            command.arg("--generate-self-signed");
        } else {
            command.args(["--generate-certificate", "--load-ca-certificate"]);
            command.arg(file("ca-cert.pem"));
            command.arg("--load-ca-privkey").arg(file("ca-key.pem"));
        }
        command.arg("--load-privkey").arg(file(&format!("{name}-key.pem")));
        command.arg("--template").arg(file(&format!("{name}.info")));
        succeed(command.arg("--outfile").arg(file(&format!("{name}-cert.pem"))));
    }
}

/// A directory with nothing but the authority: a client without a certificate.
fn anonymous(directory: &Path) -> PathBuf {
    let path = directory.join("anonymous");
    std::fs::create_dir(&path).unwrap();
    std::fs::copy(directory.join("ca-cert.pem"), path.join("ca-cert.pem")).unwrap();
    path
}

fn copy_both_ways(server: &Server, uri: &str) {
    let (there, back) = (server.file("there"), server.file("back"));
    std::fs::write(&there, noise(11, 16 * MIB as usize)).unwrap();
    succeed(Command::new("nbdcopy").arg(&there).arg(uri));
    succeed(Command::new("nbdcopy").arg(uri).arg(&back));
    assert!(std::fs::read(&there).unwrap() == std::fs::read(&back).unwrap());
}

fn assert_nothing_left(server: Server) {
    let report = server.stop();
    assert_eq!((report.connections, report.leaked_bytes), (0, 0), "{report:?}");
}

#[test]
fn certificates_are_what_other_tools_take_them_for() {
    if !has("certtool") || !has("nbdcopy") || !has("qemu-img") || nbdsh().is_none() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    let path = directory.path().to_path_buf();
    let server =
        serve(move || Tls::from_certificates(&path, ClientCertificates::NotAsked).unwrap());
    let uri =
        server.tls_uri(&format!("localhost/disk?tls-certificates={}&", directory.path().display()));
    copy_both_ways(&server, &uri);

    let code = "h.set_uri_allow_local_file(True)\nh.connect_uri(uri)\n\
                for i in range(300):\n    h.pwrite(bytes([i & 255]) * 5120, i * 512)\n\
                assert h.get_tls_negotiated()\n\
                assert h.pread(512, 299 * 512) == bytes([299 & 255]) * 512";
    succeed(nbdsh().unwrap().args(["-c", &format!("uri = {uri:?}"), "-c", code]));

    let credentials =
        format!("tls-creds-x509,id=tls,endpoint=client,dir={}", directory.path().display());
    let target = format!(
        "driver=nbd,server.type=unix,server.path={},export=disk,tls-creds=tls,\
         tls-hostname=localhost",
        server.socket().display()
    );
    let mut command = Command::new("qemu-img");
    let text = succeed(command.args(["info", "--object", &credentials, "--image-opts", &target]));
    assert!(text.contains("16 MiB"), "{text}");

    let plain = run(Command::new("nbdinfo").arg(server.uri()));
    assert!(!plain.status.success(), "without TLS nothing is told");
    assert_nothing_left(server);
}

#[test]
fn a_client_without_certificate_is_not_let_in_where_one_is_required() {
    if !has("certtool") || !has("nbdinfo") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    let without = anonymous(directory.path());
    let path = directory.path().to_path_buf();
    let server =
        serve(move || Tls::from_certificates(&path, ClientCertificates::Required).unwrap());
    let uri = |directory: &Path| {
        server.tls_uri(&format!("localhost/disk?tls-certificates={}&", directory.display()))
    };
    succeed(Command::new("nbdinfo").arg(uri(directory.path())));
    let refused = run(Command::new("nbdinfo").arg(uri(&without)));
    assert!(!refused.status.success());
    succeed(Command::new("nbdinfo").arg(uri(directory.path())));
    assert_nothing_left(server);
}

#[test]
fn offered_tls_leaves_the_choice_to_the_client() {
    if !has("certtool") || !has("nbdinfo") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    make_certificates(directory.path());
    let path = directory.path().to_path_buf();
    let server = serve(move || {
        Tls::from_certificates(&path, ClientCertificates::NotAsked).unwrap().offered()
    });
    let uri =
        server.tls_uri(&format!("localhost/disk?tls-certificates={}&", directory.path().display()));
    assert!(succeed(Command::new("nbdinfo").arg(uri)).contains("with TLS"));
    assert!(succeed(Command::new("nbdinfo").arg(server.uri())).contains("without TLS"));
    assert_nothing_left(server);
}

#[test]
fn unusable_certificates_are_named_before_anyone_connects() {
    let directory = tempfile::tempdir().unwrap();
    let load = || Tls::from_certificates(directory.path(), ClientCertificates::Required);
    let message = |error: io::IoError| error.message;
    assert!(message(load().unwrap_err()).contains("server-cert.pem"));
    std::fs::write(directory.path().join("server-cert.pem"), "nothing of value").unwrap();
    assert!(message(load().unwrap_err()).contains("no certificate"));
}

#[cfg(feature = "tls-psk")]
#[test]
fn shared_keys_let_in_who_has_one() {
    if !has("nbdcopy") || !has("qemu-img") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let keys = directory.path().join("keys.psk");
    let key = |digit: &str| format!("anna:{}\n", digit.repeat(64));
    std::fs::write(&keys, key("a")).unwrap();
    let path = keys.clone();
    let server = serve(move || Tls::from_psk_file(&path).unwrap());
    let uri = |file: &Path, user: &str| {
        server.tls_uri(&format!("{user}@localhost/disk?tls-psk-file={}&", file.display()))
    };
    copy_both_ways(&server, &uri(&keys, "anna"));

    let credentials = format!(
        "tls-creds-psk,id=tls,endpoint=client,dir={},username=anna",
        directory.path().display()
    );
    let target = format!(
        "driver=nbd,server.type=unix,server.path={},export=disk,tls-creds=tls",
        server.socket().display()
    );
    let mut command = Command::new("qemu-img");
    succeed(command.args(["info", "--object", &credentials, "--image-opts", &target]));

    let wrong = directory.path().join("wrong.psk");
    std::fs::write(&wrong, key("b")).unwrap();
    assert!(!run(Command::new("nbdinfo").arg(uri(&wrong, "anna"))).status.success());
    let stranger = directory.path().join("stranger.psk");
    std::fs::write(&stranger, key("a").replace("anna", "otto")).unwrap();
    assert!(!run(Command::new("nbdinfo").arg(uri(&stranger, "otto"))).status.success());
    assert!(!run(Command::new("nbdinfo").arg(server.uri())).status.success());
    assert_nothing_left(server);
}
