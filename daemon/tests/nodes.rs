//! Daemons of several nodes: one job, and a webhook that wants to know who calls.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use gputrace_trace::Recording;
use gputrace_trace::daemon::Ask;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;

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

/// What is posted to an address, as it comes.
fn posts() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.expect("a caller");
            let (mut text, mut some) = (Vec::new(), [0; 4096]);
            while let Ok(read @ 1..) = socket.read(&mut some) {
                text.extend_from_slice(&some[..read]);
                if text.ends_with(b"}") {
                    let answered = socket.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
                    answered.expect("answered");
                    break;
                }
            }
            if tell.send(String::from_utf8(text).expect("text")).is_err() {
                return;
            }
        }
    });
    (port, told)
}

/// A job of two ranks on each of two nodes hangs: one of the nodes posts it, whichever notices it first. Gives what was posted, how often
/// something was kept on each node, and the nodes' findings.
fn hang_of_two_nodes(actions: &str, first_to_hang: usize) -> (Vec<String>, Vec<usize>, Vec<Value>) {
    let place = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(place.path());
    let ports = [port(), port()];
    let (hook, posted) = posts();
    let daemons: Vec<Running> = (0..2)
        .map(|node| {
            let name = format!("node{node}");
            let nodes = authority.config(&name, ports[node], &[ports[1 - node]]);
            let rules = format!("[trigger.hang]\nafter_s = 3\nactions = [{actions}]\n");
            let webhook = format!("[webhook]\nurl = \"http://127.0.0.1:{hook}/\"\n");
            Running::named(&name, &(webhook + &rules + &nodes))
        })
        .collect();
    let group = "slurm-80";
    let mut fakes: Vec<Fake> = (0..4)
        .map(|rank| {
            let node = rank / 2;
            let number = u32::try_from(rank).expect("few");
            Fake::new(
                &daemons[node].socket,
                &format!("node{node}-{rank}-5"),
                group,
                number,
            )
        })
        .collect();
    for daemon in &daemons {
        daemon.jobs_when(|jobs| jobs[0]["ranks"] == 4);
    }
    let step = |fake: &mut Fake| {
        fake.write_row();
        fake.totals.enqueued += 10;
        fake.totals.finished = Some(fake.totals.enqueued - 1);
        fake.end_step(10 * MS, Some(MS));
    };
    for _ in 0..25 {
        fakes.iter_mut().for_each(step);
    }
    // One node goes on a little longer.
    std::thread::sleep(Duration::from_millis(700));
    for (rank, fake) in fakes.iter_mut().enumerate() {
        if rank / 2 != first_to_hang {
            fake.totals.finished = Some(fake.totals.enqueued);
            fake.report(Vec::new());
        }
    }
    let ask = |daemon: &Running| {
        daemon
            .ask(Ask::Job {
                job: Some(group.to_owned()),
            })
            .expect("the job")
    };
    let is_found = |daemon: &Running| ask(daemon)["findings"].as_array().map(Vec::len) == Some(1);
    let until = Instant::now() + 2 * PATIENCE;
    let mut go_on = |wanted: &dyn Fn() -> bool, until: Instant| {
        while !wanted() && Instant::now() < until {
            for fake in &mut fakes {
                fake.obey(Duration::from_millis(20));
            }
        }
    };
    go_on(&|| daemons.iter().all(is_found), until);
    // Whoever waited for another to act would have acted by now.
    go_on(&|| false, Instant::now() + Duration::from_secs(4));
    let kept = daemons.iter().map(|daemon| {
        let captures = daemon.ask(Ask::Captures).expect("captures")["captures"].clone();
        captures.as_array().map_or(0, Vec::len)
    });
    (
        posted.try_iter().collect(),
        kept.collect(),
        daemons
            .iter()
            .map(|daemon| ask(daemon)["findings"].clone())
            .collect(),
    )
}

#[test]
fn a_hang_of_several_nodes_is_posted_once() {
    // Node 1 notices it first, and leaves it to node 0; or node 0 is the first to notice it.
    for (actions, first, kept) in [
        ("\"snapshot\", \"webhook\"", 1, 1),
        ("\"webhook\"", 1, 0),
        ("\"webhook\"", 0, 0),
    ] {
        let (posted, captures, findings) = hang_of_two_nodes(actions, first);
        for findings in &findings {
            assert_eq!(findings.as_array().map(Vec::len), Some(1), "{findings:#}");
            assert_eq!(findings[0]["trigger"], "hang");
            assert_eq!(findings[0]["recording"].is_string(), kept == 1, "{findings:#}");
        }
        assert_eq!(posted.len(), 1, "{posted:#?}");
        assert!(
            posted[0].contains("\"node0\"") && posted[0].contains("nothing has gone on"),
            "{posted:#?}"
        );
        assert_eq!(captures, [kept, kept]);
    }
}

/// Each node has one rank, and that of the second one becomes late: which only those of the others show.
fn late_by_other_nodes_alone(count: usize) {
    let place = tempfile::tempdir().expect("a folder");
    let authority = Authority::new(place.path());
    let ports: Vec<u16> = (0..count).map(|_| port()).collect();
    let (hook, posted) = posts();
    let mut daemons: Vec<Running> = (0..count)
        .map(|node| {
            let others: Vec<u16> = ports.iter().copied().filter(|of| *of != ports[node]).collect();
            let name = format!("node{node}");
            let nodes = authority.config(&name, ports[node], &others);
            let webhook = format!("[webhook]\nurl = \"http://127.0.0.1:{hook}/\"\n");
            // They tell of steps once, and then of nothing for as long as the machine takes.
            let rules = "[trigger.hang]\nenabled = false\n";
            Running::named(&name, &(webhook + rules + &nodes))
        })
        .collect();
    let group = "slurm-79";
    let mut fakes: Vec<Fake> = (0..count)
        .map(|node| {
            let rank = u32::try_from(node).expect("few");
            Fake::new(&daemons[node].socket, &format!("node{node}-1-5"), group, rank)
        })
        .collect();
    for daemon in &daemons {
        daemon.jobs_when(|jobs| jobs[0]["nodes"] == count);
    }
    for step in 0..60 {
        for (rank, fake) in fakes.iter_mut().enumerate() {
            fake.write_row();
            let communication_ms = if rank == 1 && step >= 20 { 10 } else { 30 };
            fake.end_step(80 * MS, Some(communication_ms * MS));
        }
    }
    let ask = |daemon: &Running| {
        let job = Some(group.to_owned());
        daemon.ask(Ask::Job { job }).expect("the job")
    };
    let is_known = |daemon: &Running| {
        let job = ask(daemon);
        let finding = &job["findings"][0];
        finding["recording"].is_string() && job["steps"] == 60
    };
    let until = Instant::now() + 2 * PATIENCE;
    while !daemons.iter().all(is_known) {
        for fake in &mut fakes {
            fake.obey(Duration::from_millis(20));
        }
        assert!(
            Instant::now() < until,
            "{:#?}",
            daemons.iter().map(ask).collect::<Vec<_>>()
        );
    }
    // Whoever waited for another to act would have acted by now.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        for fake in &mut fakes {
            fake.obey(Duration::from_millis(20));
        }
    }
    for (node, daemon) in daemons.iter().enumerate() {
        let job = ask(daemon);
        let findings = job["findings"].as_array().expect("findings");
        assert_eq!(findings.len(), 1, "{findings:#?}");
        assert_eq!(
            (&findings[0]["trigger"], &findings[0]["rank"]),
            (&"late-rank".into(), &1.into())
        );
        let title = findings[0]["title"].as_str().expect("a title");
        assert!(
            title.starts_with("rank 1 is late: 20.0 ms of 80.0 ms a step since step 20"),
            "{title}"
        );
        let last = &job["recent"].as_array().expect("steps").last().expect("one")["late_ns"];
        assert_eq!(last.as_object().map(serde_json::Map::len), Some(count), "{last}");
        let captures = daemon.ask(Ask::Captures).expect("captures")["captures"].clone();
        assert_eq!(captures.as_array().map(Vec::len), Some(1), "{captures:#}");
        assert_eq!(captures[0]["recording"], findings[0]["recording"]);
        // Where rank 0 is acts first.
        let said_by = if node == 0 { "rank 1" } else { "node0: rank 1" };
        let title = captures[0]["title"].as_str().expect("a title");
        assert!(title.starts_with(said_by), "{title}");
        let path = PathBuf::from(captures[0]["path"].as_str().expect("a path"));
        assert_eq!(Recording::open(&path).expect("a recording").processes.len(), 1);
    }
    let post = posted.recv_timeout(PATIENCE).expect("a post");
    assert!(
        post.contains("\"node0\"") && post.contains("rank 1 is late"),
        "{post}"
    );
    assert_eq!(posted.try_recv().ok(), None, "it was told once");
    // A rank that says nothing is waited for in vain, and counted.
    let missing = |job: &Value| job["missing_reports"].as_u64().expect("a number");
    let before = missing(&ask(&daemons[0]));
    let silent = fakes.pop();
    let mut go_on = |until_step: u64, daemons: &[Running]| {
        for _ in 0..5 {
            for fake in &mut fakes {
                fake.end_step(80 * MS, Some(30 * MS));
            }
        }
        let until = Instant::now() + PATIENCE;
        while ask(&daemons[0])["steps"] != until_step {
            assert!(Instant::now() < until, "{:#}", ask(&daemons[0]));
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    go_on(65, &daemons);
    assert!(missing(&ask(&daemons[0])) >= before + 5);
    // With its node it goes, and the others go on.
    drop(silent);
    drop(daemons.pop());
    daemons[0].jobs_when(|jobs| jobs[0]["nodes"] == count - 1);
    go_on(70, &daemons);
}

#[test]
fn of_two_nodes_one_rank_is_late_by_the_others_alone() {
    late_by_other_nodes_alone(2);
}

#[test]
fn of_three_nodes_one_rank_is_late_by_the_others_alone() {
    late_by_other_nodes_alone(3);
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
