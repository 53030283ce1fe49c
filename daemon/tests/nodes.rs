//! Daemons of several nodes: one job, and a webhook that wants to know who calls.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gputrace_trace::Recording;
use gputrace_trace::daemon::Ask;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::fake::{Fake, PATIENCE, Running};

const MS: i64 = 1_000_000;

/// As PEM has it.
fn pem(word: &str, der: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in der.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= three.len() { digit as char } else { '=' });
        }
    }
    format!("-----BEGIN {word}-----\n{text}\n-----END {word}-----\n")
}

/// An authority, whose certificate is `ca.pem` in a folder.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

impl Authority {
    fn new(folder: &Path) -> Self {
        fs::create_dir_all(folder).expect("made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed");
        fs::write(folder.join("ca.pem"), pem("CERTIFICATE", certificate.der())).expect("written");
        Self {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
        }
    }

    /// A certificate for this machine, and its key, in DER.
    fn make(&self) -> (Vec<u8>, Vec<u8>) {
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        (certificate.der().to_vec(), key.serialize_der())
    }

    /// The part of a configuration for a node.
    fn config(&self, name: &str, listen: u16, others: &[u16]) -> String {
        let (certificate, key) = self.make();
        let path = |what: &str| self.folder.join(format!("{name}.{what}"));
        fs::write(path("pem"), pem("CERTIFICATE", &certificate)).expect("written");
        fs::write(path("key"), pem("PRIVATE KEY", &key)).expect("written");
        let nodes: Vec<String> = others
            .iter()
            .map(|port| format!("\"127.0.0.1:{port}\""))
            .collect();
        format!(
            "[nodes]\nlisten = \"127.0.0.1:{listen}\"\nnodes = [{}]\ncertificate = {:?}\nkey = {:?}\nca = {:?}\n",
            nodes.join(", "),
            path("pem"),
            path("key"),
            self.folder.join("ca.pem")
        )
    }
}

/// A port that is free just now.
fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("bound").port()
}

#[test]
fn two_nodes_show_one_job_and_keep_the_same_of_it() {
    let place = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(&place.path().join("own"));
    let (a, b, c) = (port(), port(), port());
    let one = Running::named("node1", &authority.config("node1", a, &[b, c]));
    let two = Running::named("node2", &authority.config("node2", b, &[a, c]));
    // Somebody whom the same authority has not signed is not listened to.
    let other = Authority::new(&place.path().join("other"));
    let three = Running::named("node3", &other.config("node3", c, &[a, b]));
    let group = "slurm-77";
    let mut fakes = [
        Fake::new(&one.socket, "node1-1-5", group, 0),
        Fake::new(&one.socket, "node1-2-5", group, 1),
        Fake::new(&two.socket, "node2-1-5", group, 2),
        Fake::new(&two.socket, "node2-2-5", group, 3),
        Fake::new(&three.socket, "node3-1-5", group, 4),
    ];
    // Of another job.
    let apart = Fake::new(&two.socket, "node2-3-5", "slurm-78", 0);
    for daemon in [&one, &two] {
        let jobs = daemon.jobs_when(|jobs| jobs[0]["ranks"] == 4 && jobs[0]["nodes"] == 2);
        assert_eq!((&jobs[0]["job"], &jobs[0]["joined"]), (&group.into(), &4.into()));
        let ask = Ask::Job {
            job: Some(group.to_owned()),
        };
        let job = daemon.ask(ask).expect("the job");
        let mut ranks: Vec<u64> = job["processes"]
            .as_array()
            .expect("processes")
            .iter()
            .filter_map(|one| one["rank"].as_u64())
            .collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [0, 1, 2, 3], "{job:#}");
    }
    assert_eq!(three.jobs_when(|jobs| jobs[0]["ranks"] == 1)[0]["nodes"], 1);
    // The second node's ranks become slow; the first's are told of no such step.
    for step in 0..40 {
        for fake in &mut fakes[2..4] {
            fake.write_row();
            fake.end_step(if step < 30 { 80 * MS } else { 200 * MS }, None);
        }
        fakes[0].write_row();
        fakes[1].write_row();
    }
    let until = Instant::now() + PATIENCE;
    let kept = |daemon: &Running| {
        let captures = daemon.ask(Ask::Captures).expect("captures")["captures"].clone();
        captures[0]["recording"]
            .as_str()
            .map(|name| (name.to_owned(), captures[0]["title"].clone()))
    };
    loop {
        for fake in &mut fakes {
            fake.obey(Duration::from_millis(20));
        }
        if let (Some(here), Some(there)) = (kept(&one), kept(&two)) {
            assert!(
                here.0.ends_with("slow-step") && there.0.ends_with("slow-step"),
                "{here:?} {there:?}"
            );
            assert!(
                here.1
                    .as_str()
                    .is_some_and(|title| title.starts_with("node2: steps are slow")),
                "{here:?}"
            );
            for (daemon, name) in [(&one, here.0), (&two, there.0)] {
                let recording =
                    Recording::open(&daemon.state().join("captures").join(name)).expect("a recording");
                assert_eq!(recording.processes.len(), 2);
            }
            break;
        }
        assert!(Instant::now() < until, "{:?} {:?}", kept(&one), kept(&two));
    }
    assert_eq!(kept(&three), None);
    drop(apart);
    // A node that is gone is not shown any more.
    drop(two);
    one.jobs_when(|jobs| jobs[0]["ranks"] == 2);
}

#[test]
fn a_webhook_by_https_is_told_if_it_is_who_it_should_be() {
    let place = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(place.path());
    let (certificate, key) = authority.make();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from(certificate)],
                PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)),
            )
            .expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let config = Arc::new(config);
    let (tell, broke_off) = std::sync::mpsc::channel();
    let hook = std::thread::spawn(move || {
        loop {
            let (socket, _) = listener.accept().expect("a caller");
            socket.set_read_timeout(Some(PATIENCE)).expect("set");
            let session = rustls::ServerConnection::new(config.clone()).expect("a session");
            let mut stream = rustls::StreamOwned::new(session, socket);
            let mut text = Vec::new();
            let mut some = [0; 4096];
            // One that does not trust us breaks off.
            while let Ok(read @ 1..) = stream.read(&mut some) {
                text.extend_from_slice(&some[..read]);
                if text.ends_with(b"}") {
                    stream
                        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                        .expect("answered");
                    return String::from_utf8(text).expect("text");
                }
            }
            let _ = tell.send(());
        }
    });
    let fires = |lost_rows, ca: &Path| {
        let daemon = Running::new(&format!(
            "[webhook]\nurl = \"https://127.0.0.1:{port}/hook\"\nca = {ca:?}\n"
        ));
        let mut fake = Fake::new(&daemon.socket, "node7-1-5", "g", 0);
        fake.totals.lost_rows = lost_rows;
        fake.report(Vec::new());
        (daemon, fake)
    };
    // By another authority it is nobody.
    let other = Authority::new(&place.path().join("other"));
    let strange = fires(5, &other.folder.join("ca.pem"));
    broke_off
        .recv_timeout(PATIENCE)
        .expect("it called, and broke off");
    let trusting = fires(7, &place.path().join("ca.pem"));
    let text = hook.join().expect("told");
    assert!(
        text.starts_with("POST /hook HTTP/1.1\r\n") && text.contains("lost 7 rows"),
        "{text}"
    );
    drop((strange, trusting));
}

#[test]
fn what_cannot_be_used_is_said_in_one_line() {
    let place = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(place.path());
    let good = authority.config("node1", port(), &[]);
    for (config, word) in [
        (good.replace("node1.pem", "nothing.pem"), "nothing.pem"),
        (good.replace("ca.pem", "node1.key"), "no certificate"),
        (
            "[webhook]\nurl = \"https://x/\"\nca = \"/nowhere.pem\"\n".to_owned(),
            "/nowhere.pem",
        ),
    ] {
        let why = Running::refused(&config);
        assert!(why.contains(word) && why.lines().count() == 1, "{why}");
    }
    for (config, word) in [
        ("[webhook]\nurl = \"ftp://x/\"\n", "webhook.url"),
        ("[webhook]\nurl = \"http://x/\\r\\nEvil: 1\"\n", "webhook.url"),
        (
            "[nodes]\nnodes = [\"x\"]\ncertificate = \"a\"\nkey = \"b\"\nca = \"c\"\n",
            "HOST:PORT",
        ),
    ] {
        let why = gputrace_daemon::settings::Config::parse(config).expect_err("wrong");
        assert!(why.contains(word), "{why}");
    }
}
