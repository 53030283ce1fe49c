//! The server of the viewer, from outside: who is let in, ports and signals, many clients and slow ones.

use crate::common;
mod tls;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::http::{Answer, TOKEN, Viewer, raw, small_recording, view};
use common::{expect_status, gputrace, one_line, stderr};

#[test]
fn nothing_is_answered_to_strangers() {
    let viewer = view(&[small_recording()]);
    let port = viewer.port;
    assert_eq!(viewer.url, format!("http://127.0.0.1:{port}/?token={TOKEN}"));
    let asked = |method: &str, path: &str, headers: &[String]| -> Answer {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        viewer.raw(format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes())
    };
    let host = format!("Host: 127.0.0.1:{port}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let own = viewer.let_in();
    let cookie = format!("Cookie: {own}");
    let get = |path: &str, headers: &[&String]| {
        let headers: Vec<String> = headers.iter().map(|header| (*header).clone()).collect();
        asked("GET", path, &headers)
    };
    for path in [
        "/",
        "/main.js",
        "/api/recordings",
        "/api/openapi.json",
        "/nothing",
        "/api/rec/x/info",
    ] {
        let answer = get(path, &[&host]);
        assert_eq!(answer.status, 401, "{path}");
        assert!(
            !answer.text().contains(TOKEN) && answer.body.len() < 200,
            "{path}"
        );
        let evil = "Host: evil.example".to_owned();
        assert_eq!(get(path, &[&evil, &bearer]).status, 421, "{path}");
        assert_eq!(get(path, &[&evil, &cookie]).status, 421, "{path}");
        assert_eq!(get(path, &[&bearer]).status, 421, "{path} without a host");
    }
    // Rebinding: the attacker's name with our port, and one that only begins like ours.
    for name in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example"] {
        let host = format!("Host: {name}:{port}");
        assert_eq!(get("/api/recordings", &[&host, &cookie]).status, 421);
    }
    // A tunnel has another port on the other side, and its cookie that port's name.
    for name in ["localhost", "127.0.0.1", "[::1]"] {
        let host = format!("Host: {name}:5555");
        assert_eq!(get("/api/recordings", &[&host, &bearer]).status, 200);
        assert_eq!(get("/api/recordings", &[&host, &cookie]).status, 401);
        let entered = get(&format!("/?token={TOKEN}"), &[&host]);
        let set = entered.header("set-cookie").expect("a cookie");
        assert!(set.starts_with("gputrace-5555="), "{set}");
        let cookie = format!("Cookie: {}", set.split(';').next().unwrap());
        assert_eq!(get("/api/recordings", &[&host, &cookie]).status, 200);
    }
    // The token enters by the address once, and leaves it.
    let entered = get(&format!("/?token={TOKEN}&from=1"), &[&host]);
    assert_eq!(entered.status, 303);
    assert_eq!(entered.header("location"), Some("/?from=1"));
    let set = entered.header("set-cookie").expect("a cookie");
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Strict"),
        "{set}"
    );
    // What a browser keeps is not the token, and opens nothing but as a cookie of this server.
    assert!(!set.contains(TOKEN), "{set}");
    let secret = own.split_once('=').unwrap().1;
    let stolen = format!("Authorization: Bearer {secret}");
    assert_eq!(get("/", &[&host, &stolen]).status, 401);
    assert_eq!(get(&format!("/?token={secret}"), &[&host]).status, 401);
    let token = format!("Cookie: gputrace-{port}={TOKEN}");
    assert_eq!(get("/", &[&host, &token]).status, 401);
    let elsewhere = "Sec-Fetch-Site: cross-site".to_owned();
    let entered = get(&format!("/?token={TOKEN}"), &[&host, &elsewhere]);
    assert_eq!(
        (entered.status, entered.header("refresh")),
        (200, Some("0; url=/"))
    );
    assert_eq!(get("/?token=wrong", &[&host]).status, 401);
    assert_eq!(get("/", &[&host, &cookie]).status, 200);
    let other = format!("Authorization: Bearer {}", TOKEN.replace('0', "1"));
    assert_eq!(get("/", &[&host, &other]).status, 401);
    // Nothing is written, and nobody else's page may try.
    let post = |origin: Option<&str>| {
        let mut headers = vec![host.clone(), cookie.clone(), "Content-Length: 0".to_owned()];
        headers.extend(origin.map(|origin| format!("Origin: {origin}")));
        asked("POST", "/api/recordings", &headers).status
    };
    assert_eq!(post(None), 403);
    assert_eq!(post(Some("http://evil.example")), 403);
    assert_eq!(post(Some("null")), 403);
    assert_eq!(post(Some(&format!("http://127.0.0.1:{port}"))), 405);
    assert_eq!(asked("DELETE", "/", &[host.clone(), cookie.clone()]).status, 403);
    assert_eq!(
        asked("OPTIONS", "/api/recordings", &[host.clone(), cookie.clone()]).status,
        403
    );
    assert_eq!(
        asked("HEAD", "/api/recordings", &[host.clone(), cookie.clone()]).status,
        200
    );
}

#[test]
fn every_answer_tells_browsers_what_to_hold_to() {
    let viewer = view(&[small_recording()]);
    let stranger = raw(
        viewer.port,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    );
    let id = viewer.id("ddp run");
    for answer in [
        stranger,
        viewer.get("/"),
        viewer.get("/nothing"),
        viewer.get("/api/recordings"),
        viewer.get("/api/nothing"),
        viewer.get(&format!("/api/rec/{id}/1/rows")),
        viewer.get(&format!("/?token={TOKEN}")),
    ] {
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"));
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
        assert_eq!(
            answer.header("cross-origin-opener-policy"),
            Some("same-origin-allow-popups")
        );
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert!(answer.header("cache-control").is_some());
    }
}

#[test]
fn files_are_those_of_the_page() {
    let viewer = view(&[small_recording()]);
    let page = viewer.get("/");
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(!page.text().contains(TOKEN));
    for path in [
        "/../Cargo.toml",
        "/%2e%2e/Cargo.toml",
        "/..%2fCargo.toml",
        "/panels/../../Cargo.toml",
        "//etc/passwd",
        "/etc/passwd",
        "/%00",
        "/.git/config",
        "/tests/format.test.js",
        "/index.html/",
    ] {
        assert_eq!(viewer.get(path).status, 404, "{path}");
    }
    // Recordings are known by their numbers alone.
    let path = small_recording()
        .display()
        .to_string()
        .replace('/', "%2F")
        .replace(' ', "%20");
    for rec in [
        path.as_str(),
        "..%2f..%2fetc",
        "%2e%2e",
        "ddp%20run",
        "0000000000000000",
    ] {
        assert_eq!(viewer.get(&format!("/api/rec/{rec}/info")).status, 404, "{rec}");
    }
}

#[test]
fn ports() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut command = gputrace();
    command
        .args(["view", "--no-open", "--port", &port.to_string()])
        .arg(small_recording());
    let refused = expect_status(&mut command, 2);
    let line = one_line(&refused);
    assert!(line.contains(&format!("port {port} is in use")), "{line}");
    assert!(refused.stdout.is_empty());
    // Without --port they follow each other.
    let (first, second) = (view(&[small_recording()]), view(&[small_recording()]));
    assert_ne!(first.port, second.port);
    assert_eq!(second.get("/api/recordings").status, 200);
    // The cookie of one is none of the other's.
    let of_first = first.let_in();
    let ask = |viewer: &Viewer, cookie: &str| {
        let port = viewer.port;
        let question = format!(
            "GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        viewer.raw(question.as_bytes()).status
    };
    assert_eq!(ask(&first, &of_first), 200);
    assert_eq!(ask(&second, &of_first), 401);
    // Nor under the other's name, although both have the same token.
    let renamed = of_first.replace(&first.port.to_string(), &second.port.to_string());
    assert_eq!(ask(&second, &renamed), 401);
    // Nor of the next server at the same port: all sessions end with theirs. The port is one that neither other tests' servers
    // (7007 and on) nor the system (from 32768 on) take in between.
    let port = (20_000 + std::process::id() as u16 % 8_000..)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap();
    let start = || {
        let mut command = gputrace();
        command
            .args(["view", "--no-open", "--port", &port.to_string()])
            .arg(small_recording());
        Viewer::start(command.stderr(std::process::Stdio::null()))
    };
    let before = start();
    let of_before = before.let_in();
    assert_eq!(ask(&before, &of_before), 200);
    drop(before);
    let next = start();
    assert_eq!(ask(&next, &of_before), 401);
    assert_eq!(ask(&next, &next.let_in()), 200);
}

#[test]
fn it_ends_when_it_is_told_to() {
    for signal in ["-INT", "-TERM"] {
        let mut viewer = view(&[small_recording()]);
        // A browser keeps its connections, and somebody is in the middle of a question.
        let mut idle = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: loc").unwrap();
        let begun = Instant::now();
        assert_eq!(viewer.end(signal).code(), Some(0));
        assert!(begun.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn what_it_says_at_the_start() {
    let mut command = gputrace();
    command.args(["view", "--no-open"]).arg(small_recording());
    command
        .env("SSH_CONNECTION", "10.1.2.3 50000 10.1.2.4 2222")
        .env("USER", "ada");
    command.env("GPUTRACE_TOKEN", TOKEN);
    command
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1000));
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert!(
        said.contains("ssh -N -L ") && said.contains(":127.0.0.1:") && said.contains("ada@"),
        "{said}"
    );
    assert!(said.contains(" -p 2222"), "{said}");
    assert!(!said.contains(TOKEN), "the token is in the address alone");
    for (wrong, word) in [
        ("short", "GPUTRACE_TOKEN"),
        ("0123456789abcdef;x=1", "GPUTRACE_TOKEN"),
    ] {
        let mut command = gputrace();
        command
            .args(["view", "--no-open"])
            .arg(small_recording())
            .env("GPUTRACE_TOKEN", wrong);
        assert!(one_line(&expect_status(&mut command, 2)).contains(word));
    }
}

#[test]
fn beyond_loopback_it_warns_and_keeps_the_token() {
    let mut command = gputrace();
    command
        .args([
            "view",
            "--no-open",
            "--listen",
            "0.0.0.0",
            "--host-name",
            "Node7",
            "--no-tls",
        ])
        .arg(small_recording());
    command
        .env("GPUTRACE_TOKEN", TOKEN)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut url = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.take().unwrap()),
        &mut url,
    )
    .unwrap();
    let port: u16 = url
        .trim_start_matches("http://Node7:")
        .split('/')
        .next()
        .unwrap()
        .parse()
        .expect(&url);
    let ask = |host: &str, token: bool| {
        let bearer = if token {
            format!("Authorization: Bearer {TOKEN}\r\n")
        } else {
            String::new()
        };
        raw(
            port,
            format!("GET /api/recordings HTTP/1.1\r\nHost: {host}\r\n{bearer}Connection: close\r\n\r\n")
                .as_bytes(),
        )
        .status
    };
    assert_eq!(ask("node7:1234", true), 200);
    assert_eq!(ask("10.0.0.7:1234", true), 200);
    assert_eq!(ask("node8", true), 421);
    assert_eq!(ask("node7", false), 401);
    let pid = child.id().to_string();
    assert!(
        std::process::Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert!(
        said.contains("other machines can reach this port") && said.contains("nothing is encrypted"),
        "{said}"
    );
}

/// Requests for pictures of a recording, one after another, all in one go.
fn pipelined(base: &str, count: usize, head: &str) -> Vec<u8> {
    let request = |number: usize| {
        let (first, last) = (1 + number % 3, 3);
        format!("GET {base}/analysis?steps={first}-{last} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n\r\n")
    };
    (0..count).map(request).collect::<String>().into_bytes()
}

fn answers(bytes: &[u8]) -> usize {
    let mark = b"HTTP/1.1 200 ";
    bytes.windows(mark.len()).filter(|window| window == mark).count()
}

#[test]
fn of_a_client_that_has_gone_nothing_is_worked_on() {
    const MANY: usize = 10_000;
    let viewer = view(&[small_recording()]);
    let base = viewer.base(&viewer.id("ddp run"));
    let head = format!("Authorization: Bearer {TOKEN}");
    // It stays: everything is answered, in order.
    let mut stays = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
    let mut requests = pipelined(&base, 50, &head);
    let last = format!("GET /nothing HTTP/1.1\r\nHost: localhost\r\n{head}\r\nConnection: close\r\n\r\n");
    requests.extend_from_slice(last.as_bytes());
    stays.write_all(&requests).unwrap();
    let mut bytes = Vec::new();
    stays.read_to_end(&mut bytes).unwrap();
    assert_eq!(answers(&bytes), 50);
    assert!(String::from_utf8_lossy(&bytes).contains("HTTP/1.1 404 "));
    // It closes its side in the middle, and still takes what comes.
    let mut half = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
    let begun = Instant::now();
    let mut bytes = Vec::new();
    let mut writes = half.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let requests = pipelined(&base, MANY, &head);
            let writing = writes.write_all(&requests);
            drop(writing.and_then(|()| writes.shutdown(std::net::Shutdown::Write)));
        });
        let reading = half.read_to_end(&mut bytes);
        drop(reading);
    });
    let answered = answers(&bytes);
    assert!(answered < MANY, "all were answered");
    // It goes away altogether.
    let mut gone = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
    gone.write_all(&pipelined(&base, 1000, &head)).unwrap();
    drop(gone);
    std::thread::sleep(Duration::from_millis(500));
    let before = cpu_ticks(viewer.child.id());
    std::thread::sleep(Duration::from_secs(1));
    let after = cpu_ticks(viewer.child.id());
    assert!(after - before < 25, "{} ticks of work for nobody", after - before);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

/// Hundredths of a second that a process has worked.
fn cpu_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn one_client_delays_no_other() {
    common::schedule::alone();
    const CONNECTIONS: usize = 200;
    let viewer = view(&[small_recording()]);
    let base = viewer.base(&viewer.id("ddp run"));
    let (greedy, other) = (viewer.let_in(), viewer.let_in());
    let requests = pipelined(&base, 200, &format!("Cookie: {greedy}").replace("localhost", ""));
    let ask = |cookie: &str| {
        let port = viewer.port;
        let begun = Instant::now();
        let question = format!(
            "GET {base}/analysis?steps=1-2 HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nCookie: {cookie}\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(viewer.raw(question.as_bytes()).status, 200);
        begun.elapsed()
    };
    let requests = String::from_utf8(requests).unwrap();
    let requests = requests.replace("Host: localhost", &format!("Host: 127.0.0.1:{}", viewer.port));
    let flood: Vec<TcpStream> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
            stream.write_all(requests.as_bytes()).unwrap();
            stream
        })
        .collect();
    let (mine, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| (0..5).map(|_| ask(&other)).max().unwrap());
        let mine = scope.spawn(|| ask(&greedy));
        (mine.join().unwrap(), theirs.join().unwrap())
    });
    eprintln!("the greedy client waited {mine:?}, the other {theirs:?} at most");
    assert!(theirs < Duration::from_secs(5), "{theirs:?}");
    drop(flood);
    assert!(ask(&other) < Duration::from_secs(2));
}

#[test]
fn many_clients_and_slow_ones() {
    let viewer = view(&[small_recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    // Some ask and take nothing, some never end their question.
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        let question = format!(
            "GET {base}/export?format=chrome HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        );
        stream.write_all(question.as_bytes()).unwrap();
        slow.push(stream);
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: lo").unwrap();
        slow.push(stream);
    }
    let (viewer, base) = (&viewer, &base);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for client in 0..100u64 {
            scope.spawn(move || {
                for round in 0..5 {
                    let level = 10 + (client + round) % 15;
                    assert_eq!(
                        viewer.get(&format!("{base}/tiles/{level}/0?rows=0-9")).status,
                        200
                    );
                    assert_eq!(
                        viewer
                            .get(&format!("{base}/analysis?steps=1-{}", 1 + client % 3))
                            .status,
                        200
                    );
                    assert_eq!(viewer.get(&format!("{base}/search?q=e")).status, 200);
                }
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    drop(slow);
}

#[test]
fn connections_that_are_left_alone_keep_nobody_out() {
    const MANY: usize = 900;
    raise_the_limit_of_open_files();
    let viewer = view(&[small_recording()]);
    let mut idle = Vec::new();
    let begun = Instant::now();
    for number in 0..MANY {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        if number % 2 == 0 {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: lo").unwrap();
        }
        idle.push(stream);
    }
    for _ in 0..20 {
        assert_eq!(viewer.get("/api/recordings").status, 200);
    }
    // They would be waited for a minute.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

#[test]
fn questions_that_come_in_drops_keep_nobody_out() {
    const MANY: usize = 850;
    raise_the_limit_of_open_files();
    let viewer = view(&[small_recording()]);
    let begun = Instant::now();
    let mut dripping = Vec::new();
    for _ in 0..MANY {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        stream
            .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nDrops: ")
            .unwrap();
        dripping.push(stream);
    }
    let (answered, ends) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            while ends.recv_timeout(Duration::from_millis(100))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                // Those that had to leave are no failure.
                dripping.retain_mut(|stream| stream.write_all(b".").is_ok());
            }
        });
        // Those that were there before the first drop fell may have left for the last of them.
        std::thread::sleep(Duration::from_secs(1));
        for _ in 0..20 {
            assert_eq!(viewer.get("/api/recordings").status, 200);
        }
        drop(answered);
    });
    // They would be waited for a minute.
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

/// Tests run beside each other, and share what a process may open.
fn raise_the_limit_of_open_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both get a pointer to a limit that lives.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_cur.max(limit.rlim_max.min(1 << 14));
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
    }
}

#[test]
fn help_says_how() {
    let help = expect_status(gputrace().args(["view", "--help"]), 0);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for word in [
        "--no-open",
        "--port",
        "--listen",
        "--host-name",
        "--tls-certificate",
        "--tls-key",
        "GPUTRACE_TOKEN",
        "openapi.json",
    ] {
        assert!(text.contains(word), "{word}");
    }
    let wrong = expect_status(gputrace().arg("view"), 2);
    assert!(stderr(&wrong).contains("PATH"));
}
