//! `--listen` by TLS: what clients see of it, and what those get that speak something else.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::http::{TOKEN, Viewer, small_recording};
use crate::common::{expect_status, gputrace, one_line};

/// A server at all addresses, and the fingerprint that it says.
fn listening(arguments: &[&str]) -> (Viewer, String) {
    let mut command = gputrace();
    command
        .args(["view", "--no-open", "--listen", "0.0.0.0"])
        .args(arguments)
        .arg(small_recording());
    let mut viewer = Viewer::start(command.stderr(Stdio::piped()));
    let mut said = BufReader::new(viewer.child.stderr.take().expect("a pipe"));
    let mark = "SHA-256 fingerprint: ";
    let line = said
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .find(|line| line.contains(mark))
        .expect("the fingerprint");
    // It goes on to say things there.
    viewer.child.stderr = Some(said.into_inner());
    let fingerprint = line.split_once(mark).unwrap().1.trim().to_owned();
    (viewer, fingerprint)
}

/// Whether a program is here; says so where it is not.
fn has(program: &str, argument: &str) -> bool {
    let found = Command::new(program)
        .arg(argument)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let has = found.is_ok_and(|status| status.success());
    if !has {
        eprintln!("SKIPPED: {program} is not here, so nothing of what it would have said was tested");
    }
    has
}

/// What curl gets: the status and everything it printed.
fn curl(viewer: &Viewer, arguments: &[&str], path: &str) -> (Option<i32>, String) {
    let url = format!("https://127.0.0.1:{}{path}", viewer.port);
    let output = Command::new("curl")
        .args(["-sS", "-i", "--noproxy", "*"])
        .args(arguments)
        .arg(url)
        .output()
        .expect("curl");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// The certificate that a server shows, in PEM, and its fingerprint, by openssl.
fn shown(viewer: &Viewer) -> (String, String) {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-connect", &format!("127.0.0.1:{}", viewer.port)]);
    let output = client.stdin(Stdio::null()).output().expect("openssl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = text.find("-----BEGIN CERTIFICATE-----").expect(&text);
    let end = text.find("-----END CERTIFICATE-----").expect(&text);
    let pem = format!("{}-----END CERTIFICATE-----\n", &text[begin..end]);
    let mut digest = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("openssl");
    digest.stdin.take().unwrap().write_all(pem.as_bytes()).unwrap();
    let output = digest.wait_with_output().unwrap();
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    (pem, line.trim().rsplit_once('=').expect(&line).1.to_owned())
}

#[test]
fn the_certificate_is_the_one_that_was_said() {
    let (viewer, fingerprint) = listening(&[]);
    assert!(viewer.url.starts_with("https://"), "{}", viewer.url);
    assert_eq!(fingerprint.len(), 32 * 3 - 1, "{fingerprint}");
    if !has("openssl", "version") || !has("curl", "--version") {
        return;
    }
    let (pem, digest) = shown(&viewer);
    assert_eq!(digest, fingerprint);
    // Who trusts this one certificate needs no -k, by an address and by a name.
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("cert.pem");
    std::fs::write(&trusted, pem).unwrap();
    let trusted = trusted.to_str().unwrap();
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let asked = curl(&viewer, &["--cacert", trusted, "-H", &bearer], "/api/recordings");
    assert!(asked.1.starts_with("HTTP/1.1 200"), "{asked:?}");
    let by_name = format!("localhost:{}:127.0.0.1", viewer.port);
    let url = format!("https://localhost:{}/", viewer.port);
    let output = Command::new("curl")
        .args(["-sS", "-i", "--noproxy", "*", "--resolve", &by_name])
        .args(["--cacert", trusted, &url])
        .output();
    let text = output.unwrap().stdout;
    assert!(
        text.starts_with(b"HTTP/1.1 401"),
        "{}",
        String::from_utf8_lossy(&text)
    );
    // Who does not is warned.
    assert_eq!(curl(&viewer, &[], "/").0, Some(60));
    // The cookie is for encrypted connections alone.
    let entered = curl(&viewer, &["-k"], &format!("/?token={TOKEN}"));
    let cookie = entered
        .1
        .lines()
        .find(|line| line.to_ascii_lowercase().starts_with("set-cookie"));
    let cookie = cookie.expect(&entered.1);
    let prefix = format!("__Host-gputrace-{}=", viewer.port);
    assert!(
        cookie.contains(&prefix) && cookie.contains("; Secure") && !cookie.contains(TOKEN),
        "{cookie}"
    );
    let pair = cookie.split_once(": ").unwrap().1.split(';').next().unwrap();
    let kept = curl(&viewer, &["-k", "-H", &format!("Cookie: {pair}")], "/");
    assert!(kept.1.starts_with("HTTP/1.1 200"), "{kept:?}");
    // Nothing older than TLS 1.2, and another start has another certificate.
    assert_ne!(curl(&viewer, &["-k", "--tls-max", "1.1"], "/").0, Some(0));
    assert_ne!(listening(&[]).1, fingerprint);
}

#[test]
fn a_certificate_that_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let refused = |certificate: &str, key: &str| {
        let mut command = gputrace();
        command.args([
            "view",
            "--no-open",
            "--tls-certificate",
            certificate,
            "--tls-key",
            key,
        ]);
        one_line(&expect_status(command.arg(small_recording()), 2))
    };
    assert!(refused(&path("nothing"), &path("nothing")).contains("nothing: no certificate can be read"));
    std::fs::write(path("text"), "no certificate").unwrap();
    assert!(refused(&path("text"), &path("text")).contains("no certificate in it"));
    let mut alone = gputrace();
    alone.args(["view", "--no-open", "--tls-certificate", &path("text")]);
    expect_status(alone.arg(small_recording()), 2);
    if !has("openssl", "version") || !has("curl", "--version") {
        return;
    }
    for name in ["one", "other"] {
        let mut make = Command::new("openssl");
        make.args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=node7",
        ]);
        make.args(["-addext", "subjectAltName=IP:127.0.0.1"]);
        make.args([
            "-keyout",
            &path(&format!("{name}.key")),
            "-out",
            &path(&format!("{name}.pem")),
        ]);
        assert!(make.stderr(Stdio::null()).status().unwrap().success());
    }
    let line = refused(&path("one.pem"), &path("other.key"));
    assert!(line.contains("can't be used with its key"), "{line}");
    let line = refused(&path("one.pem"), &path("one.pem"));
    assert!(line.contains("no private key can be read"), "{line}");
    // At the loopback address too, where it is asked for.
    let mut command = gputrace();
    let (certificate, key) = (path("one.pem"), path("one.key"));
    command
        .args([
            "view",
            "--no-open",
            "--tls-certificate",
            &certificate,
            "--tls-key",
            &key,
        ])
        .arg(small_recording());
    let viewer = Viewer::start(command.stderr(Stdio::null()));
    assert!(viewer.url.starts_with("https://127.0.0.1:"), "{}", viewer.url);
    let asked = curl(&viewer, &["--cacert", &certificate], "/");
    assert!(asked.1.starts_with("HTTP/1.1 401"), "{asked:?}");
    assert_eq!(
        std::fs::read_to_string(Path::new(&certificate)).unwrap(),
        shown(&viewer).0
    );
}

#[test]
fn who_speaks_something_else_is_told_or_left() {
    let (viewer, _) = listening(&[]);
    let plain = viewer.get("/api/recordings");
    assert_eq!(plain.status, 400);
    assert!(plain.text().contains("https://"), "{}", plain.text());
    for garbage in [
        &b"\x16\x03\x01\xff\xff"[..],
        &[0xff; 4000],
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\0",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(garbage).unwrap();
        let mut answer = Vec::new();
        // Closed at once, or when it has been waited for long enough.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        assert!(!answer.windows(4).any(|part| part == b"HTTP"));
    }
    if has("curl", "--version") {
        assert!(curl(&viewer, &["-k"], "/").1.starts_with("HTTP/1.1 401"));
    }
}

#[test]
fn handshakes_that_are_never_ended_keep_nobody_out() {
    if !has("curl", "--version") {
        return;
    }
    super::raise_the_limit_of_open_files();
    let (viewer, _) = listening(&[]);
    let begun = Instant::now();
    let mut idle = Vec::new();
    for number in 0..900 {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        if number % 2 == 0 {
            stream.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
        }
        idle.push(stream);
    }
    for _ in 0..5 {
        assert!(curl(&viewer, &["-k"], "/").1.starts_with("HTTP/1.1 401"));
    }
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    // They are left after a while, also where nobody else comes.
    let mut one = idle.pop().unwrap();
    one.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    assert!(!matches!(one.read(&mut [0; 10]), Ok(1..)), "it got an answer");
}
