//! Hostile clients: whatever one sends, it learns nothing, and others are answered as before.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bytes;
use crate::common::http::{TOKEN, Viewer};
use crate::random::Random;
use crate::world::World;

/// Others are answered within this, whatever is going on.
const OTHERS: Duration = Duration::from_secs(5);

fn connect(port: u16) -> TcpStream {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let stream = TcpStream::connect_timeout(&address, OTHERS).expect("the server listens");
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(Duration::from_secs(2))).expect("a timeout");
    }
    stream
}

/// Sends bytes, ends that side, and gives what comes back in two seconds.
fn send(port: u16, request: &[u8]) -> String {
    let mut stream = connect(port);
    // A server that refuses may close before it has read all of it.
    drop(stream.write_all(request));
    drop(stream.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    drop(stream.take(8 << 20).read_to_end(&mut answer));
    String::from_utf8_lossy(&answer).into_owned()
}

/// How many answers in what came back give something.
fn given(answer: &str) -> usize {
    answer.matches("HTTP/1.1 200").count() + answer.matches("HTTP/1.1 206").count()
}

#[track_caller]
fn learns_nothing(request: &[u8], answer: &str) {
    let shown = || String::from_utf8_lossy(&request[..request.len().min(400)]).into_owned();
    assert!(
        !answer.contains("root:x:0"),
        "files are given away by {}",
        shown()
    );
    assert!(!answer.contains("panicked"), "{}", shown());
    assert!(
        !answer.contains("HTTP/1.1 500"),
        "an error of ours by {}",
        shown()
    );
}

fn authorized(port: u16, path: &str, more: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {TOKEN}\r\n{more}\r\n")
}

/// Two requests where a careless server and a proxy see one: the second has no token.
fn smuggled(port: u16, random: &mut Random) -> String {
    let inner = format!("GET /api/recordings HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX: y\r\n\r\n");
    let heads = [
        format!(
            "Content-Length: {}\r\nTransfer-Encoding: chunked\r\n",
            inner.len() + 5
        ),
        format!(
            "Transfer-Encoding: chunked\r\nContent-Length: {}\r\n",
            inner.len()
        ),
        format!("Content-Length: 0\r\nContent-Length: {}\r\n", inner.len()),
        format!("Content-Length: {}, 0\r\n", inner.len()),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Transfer-Encoding:\x0bchunked\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n".to_owned(),
        "Content-Length: +0\r\n".to_owned(),
        "Content-Length: 18446744073709551616\r\n".to_owned(),
        "Content-Length:\r\n 0\r\n".to_owned(),
        "Expect: 100-continue\r\nContent-Length: 10\r\n".to_owned(),
        "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk\r\n".to_owned(),
    ];
    let method = random.pick(&["GET", "POST", "HEAD", "PRI", "CONNECT", "get"]);
    let body = random.pick(&["0\r\n\r\n", "", "5\r\nabc", "ffffffffffffffff\r\n", "0;x\r\n\r\n"]);
    format!(
        "{method} /nothing HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{}\r\n{body}{inner}",
        random.one_of(&heads)
    )
}

/// A request of somebody whose name now is our address: with the token, as a browser would send a cookie.
fn rebound(port: u16, random: &mut Random) -> String {
    let hosts = [
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("127.0.0.1:{port}@evil.example"),
        format!("evil.example#127.0.0.1:{port}"),
        format!("127.0.0.1%00.evil.example:{port}"),
        format!("127.0.0.1:{port}, evil.example"),
        format!("[::ffff:7f00:1].evil.example:{port}"),
        format!("0x7f.1.evil:{port}"),
        "evil.example".to_owned(),
        String::new(),
    ];
    format!(
        "GET /api/recordings HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\nCookie: gputrace-{port}={TOKEN}\r\nConnection: close\r\n\r\n",
        random.one_of(&hosts)
    )
}

fn traversal(random: &mut Random) -> String {
    const PARTS: &[&str] = &[
        "..",
        "%2e%2e",
        "..%2f",
        "%2e%2e%2f",
        ".",
        "//",
        "\\..",
        "%5c..",
        "..;",
        "%00",
        "%c0%ae%c0%ae",
        "....//",
        "etc",
        "proc/self/environ",
        "api",
        "api/rec",
        "panels",
        "~root",
    ];
    let mut path = random
        .pick(&["/", "/api/rec/", "/panels/", "/api/rec/0/1/", "//"])
        .to_string();
    for _ in 0..random.below(9) {
        path.push_str(random.pick(PARTS));
        path.push('/');
    }
    path + random.pick(&["etc/passwd", "etc%2fpasswd", "passwd", "Cargo.toml", "", "%2e"])
}

/// Numbers and words where the API expects others.
fn odd_question(viewer: &Viewer, random: &mut Random) -> String {
    const VALUES: &[&str] = &[
        "0",
        "-1",
        "1",
        "255",
        "4294967295",
        "18446744073709551615",
        "9223372036854775808",
        "1e9",
        "NaN",
        "",
        "%00",
        "a",
        "..",
        "(((((a+)+)+)+)+)$",
        "[0,",
        "%ff",
        "null",
    ];
    const WHAT: &[&str] = &[
        "analysis",
        "rows",
        "names",
        "overview",
        "collectives",
        "area",
        "hit",
        "neighbour",
        "search",
        "slice",
        "slice_at",
        "tree",
        "export",
        "tiles",
        "counters",
        "live",
    ];
    const ASKED: &[&str] = &[
        "row", "start", "end", "from", "to", "text", "format", "steps", "ranks", "range", "level", "index",
        "slice", "time", "limit", "regex", "kind",
    ];
    let list = viewer.json("/api/recordings");
    let id = list["recordings"][0]["id"].as_str().unwrap_or("0").to_owned();
    let mut path = format!("/api/rec/{id}/1/{}", random.pick(WHAT));
    for _ in 0..random.below(3) {
        path = format!("{path}/{}", random.pick(VALUES));
    }
    for place in 0..random.below(6) {
        let mark = if place == 0 { '?' } else { '&' };
        path = format!("{path}{mark}{}={}", random.pick(ASKED), random.pick(VALUES));
    }
    path
}

/// Somebody else asks, and is answered in time.
#[track_caller]
fn others_are_answered(viewer: &mut Viewer) {
    assert!(
        viewer.child.try_wait().expect("its status").is_none(),
        "the server has ended"
    );
    let begun = Instant::now();
    let answer = viewer.get("/api/recordings");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(
        begun.elapsed() < OTHERS,
        "another waited for {:?}",
        begun.elapsed()
    );
}

/// One hostile client of one sort.
pub fn hostile(world: &World, mut random: Random, folder: &Path) {
    let note = |request: &[u8]| std::fs::write(folder.join("request"), request).expect("a file");
    world.with_server(|viewer| {
        let port = viewer.port;
        let asks = |request: &[u8]| {
            note(request);
            let answer = send(port, request);
            learns_nothing(request, &answer);
            answer
        };
        match random.below(9) {
            0 => {
                let noise: Vec<u8> = (0..random.below(4096)).map(|_| random.next() as u8).collect();
                assert_eq!(given(&asks(&noise)), 0, "noise is answered");
            }
            1 => {
                let mut request = authorized(port, "/api/recordings", "Connection: close\r\n").into_bytes();
                let other = smuggled(port, &mut random);
                bytes::mutate(&mut request, other.as_bytes(), &mut random);
                asks(&request);
            }
            2 => {
                let request = smuggled(port, &mut random);
                assert_eq!(given(&asks(request.as_bytes())), 0, "given to nobody's request");
            }
            3 => {
                let request = rebound(port, &mut random);
                assert_eq!(
                    given(&asks(request.as_bytes())),
                    0,
                    "given to another name: {request}"
                );
            }
            4 => {
                let path = traversal(&mut random);
                asks(authorized(port, &path, "Connection: close\r\n").as_bytes());
            }
            5 => {
                let path = odd_question(viewer, &mut random);
                asks(authorized(port, &path, "Connection: close\r\n").as_bytes());
            }
            // Many at once on one connection, read by nobody.
            6 => {
                let path = random.pick(&["/api/recordings", "/", "/main.js", "/nothing"]);
                let many = authorized(port, path, "").repeat(1 + random.below(200));
                note(many.as_bytes());
                let mut stream = connect(port);
                drop(stream.write_all(many.as_bytes()));
                others_are_answered(viewer);
            }
            // Slow ones: a head that never ends, a body that never comes.
            7 => {
                let mut open = Vec::new();
                for _ in 0..1 + random.below(60) {
                    let mut stream = connect(port);
                    let whole = authorized(port, "/api/recordings", "Content-Length: 100000\r\n");
                    drop(stream.write_all(&whole.as_bytes()[..random.below(whole.len() + 1)]));
                    open.push(stream);
                }
                others_are_answered(viewer);
            }
            _ => {
                let long = "a".repeat(1 << (8 + random.below(13)));
                let many: String = (0..random.below(5000)).map(|n| format!("X-{n}: y\r\n")).collect();
                let request = match random.below(4) {
                    0 => format!("GET /{long} HTTP/1.1\r\n\r\n"),
                    1 => format!("GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX: {long}\r\n\r\n"),
                    2 => format!("GET / HTTP/1.1\r\n{many}\r\n"),
                    _ => format!("{long} / HTTP/1.1\r\n\r\n"),
                };
                assert_eq!(given(&asks(request.as_bytes())), 0);
            }
        }
        others_are_answered(viewer);
    });
}
