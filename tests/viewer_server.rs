//! The server of the viewer, from outside: who is let in, what is answered, and what bad input does.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use common::http::{Answer, TOKEN, Viewer, raw};
use common::{expect_status, gputrace, one_line, stderr};
use serde_json::Value;

/// A recording of `ddp` on two simulated GPUs, made once.
fn recording() -> &'static Path {
    static RECORDING: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = RECORDING.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ddp run");
        let mut record = gputrace();
        record.args(["record", "--device", "sim", "-o"]).arg(&path);
        expect_status(
            record.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "4"]),
            0,
        );
        (folder, path)
    });
    path
}

fn view(paths: &[&Path]) -> Viewer {
    let mut command = gputrace();
    command.args(["view", "--no-open"]).args(paths);
    command.stderr(std::process::Stdio::null());
    Viewer::start(&mut command)
}

#[test]
fn nothing_is_answered_to_strangers() {
    let viewer = view(&[recording()]);
    let port = viewer.port;
    assert_eq!(viewer.url, format!("http://127.0.0.1:{port}/?token={TOKEN}"));
    let asked = |method: &str, path: &str, headers: &[String]| -> Answer {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        viewer.raw(format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").as_bytes())
    };
    let host = format!("Host: 127.0.0.1:{port}");
    let bearer = format!("Authorization: Bearer {TOKEN}");
    let cookie = format!("Cookie: gputrace-{port}={TOKEN}");
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
        let cookie = format!("Cookie: gputrace-5555={TOKEN}");
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
    let viewer = view(&[recording()]);
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
        assert_eq!(answer.header("cross-origin-opener-policy"), Some("same-origin"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert!(answer.header("cache-control").is_some());
    }
}

#[test]
fn files_are_those_of_the_page() {
    let viewer = view(&[recording()]);
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
    let path = recording()
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

/// The greatest number that is the same in a browser.
const LAST_SAFE: f64 = 9_007_199_254_740_991.0;

fn assert_safe(value: &Value, path: &str) {
    match value {
        Value::Number(number) => {
            let number = number.as_f64().expect("a number");
            assert!(number.abs() <= LAST_SAFE, "{path}: {number}");
        }
        Value::Array(list) => list.iter().for_each(|value| assert_safe(value, path)),
        Value::Object(members) => members
            .iter()
            .for_each(|(key, value)| assert_safe(value, &format!("{path}.{key}"))),
        _ => {}
    }
}

#[test]
fn every_route_answers_of_a_recording() {
    let viewer = view(&[recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    let info = viewer.json(&format!("/api/rec/{id}/info"));
    let (begin, end) = (info["begin"].as_i64().unwrap(), info["end"].as_i64().unwrap());
    assert!(
        0 <= begin && begin < end && end < 3_600_000_000_000,
        "{begin} {end}"
    );
    let origin: i64 = info["origin_ns"].as_str().unwrap().parse().unwrap();
    assert!(origin > 1_500_000_000_000_000_000);
    assert_eq!(info["simulated"], true);
    assert_eq!(info["bands"].as_array().unwrap().len(), 2);
    assert_eq!(info["steps"].as_array().unwrap().len(), 4);
    let rows = viewer.json(&format!("{base}/rows"));
    let rows = rows["rows"].as_array().unwrap();
    let stream = rows.iter().find(|row| row["what"] == "stream").expect("a stream");
    let row = &stream["row"];
    // The first and the last slice of a row, by every way to them.
    let first = viewer.json(&format!("{base}/slice?row={row}&index=0"));
    let start = &first["start"];
    assert_eq!(*start, stream["begin"]);
    let hit = viewer.json(&format!("{base}/hit?row={row}&at={start}&tolerance=0"));
    assert_eq!((&hit["index"], &hit["start"]), (&first["index"], start));
    let key = stream["key"].as_str().unwrap();
    let linked = viewer.json(&format!("{base}/slice_at?key={key}&start={start}"));
    assert_eq!(linked, hit);
    let next = viewer.json(&format!("{base}/neighbour?row={row}&index=0&direction=next"));
    assert_eq!(next["index"], 1);
    let back = viewer.json(&format!(
        "{base}/neighbour?row={row}&index=1&direction=previous&same_name=0"
    ));
    assert_eq!(back, hit);
    let mut answers: Vec<(String, Value)> = Vec::new();
    let mut ask = |path: String| {
        let answer = viewer.json(&path);
        answers.push((path, answer));
    };
    for path in [
        format!("{base}/analysis"),
        format!("{base}/analysis?steps=1-2"),
        format!("{base}/collectives?limit=1000"),
        format!("{base}/collectives?sort=skew&order=descending"),
        format!("{base}/area?from={begin}&to={end}"),
        format!("{base}/search?q=gemm"),
        format!("{base}/search?q=%5Eg&regex=1&case=1&limit=5"),
        format!("{base}/names?ids=0-99"),
        format!("{base}/rows"),
        format!("{base}/slice?row={row}&index=0"),
        format!("/api/rec/{id}/live"),
        format!("/api/rec/{id}/info"),
        format!("/api/compare?a={id}&b={id}"),
        "/api/recordings".to_owned(),
        "/api/openapi.json".to_owned(),
    ] {
        ask(path);
    }
    for row in rows {
        let slice = viewer.get(&format!("{base}/slice?row={}&index=0", row["row"]));
        if slice.status == 200 {
            answers.push(("slice".to_owned(), slice.json()));
        }
    }
    for (path, answer) in &answers {
        assert_safe(answer, path);
    }
    // Stamps of the analysis lie within the recording, and are those of the command line.
    let analysis = viewer.json(&format!("{base}/analysis"));
    assert_eq!(analysis.get("collectives"), None);
    let whole = common::analysis(recording());
    for (rank, same) in analysis["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .zip(whole["ranks"].as_array().unwrap())
    {
        assert_eq!(rank["busy_ns"], same["busy_ns"]);
        let steps = rank["steps"].as_array().unwrap().iter();
        for (step, same) in steps.zip(same["steps"].as_array().unwrap()) {
            let stamp = step["start_ns"].as_i64().unwrap();
            assert_eq!(stamp + origin, same["start_ns"].as_i64().unwrap());
        }
    }
    let listed = viewer.json(&format!("{base}/collectives?limit=1000"));
    assert_eq!(
        listed["total"].as_u64().unwrap() as usize,
        whole["collectives"].as_array().unwrap().len()
    );
    // Pictures.
    let tile = viewer.get(&format!("{base}/tiles/20/0?rows=0-{}", rows.len().min(256) - 1));
    assert_eq!(tile.status, 200);
    assert_eq!(&tile.body[..4], b"TILE".as_slice());
    assert_eq!(tile.header("content-type"), Some("application/octet-stream"));
    assert_eq!(
        tile.header("cache-control"),
        Some("private, max-age=31536000, immutable")
    );
    let counters = viewer.get(&format!(
        "{base}/counters/20/0?rows=0-{}",
        rows.len().min(256) - 1
    ));
    assert_eq!(&counters.body[..4], b"CNTR".as_slice());
    let overview = viewer.get(&format!("{base}/overview?from={begin}&to={end}&bins=100"));
    assert_eq!(&overview.body[..4], b"OVER".as_slice());
    assert_eq!(overview.body.len(), 16 + 2 * 4 * 100 * 4);
}

#[test]
fn parameters_have_limits() {
    let viewer = view(&[recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    for (path, status) in [
        ("tiles/51/0?rows=0", 400),
        ("tiles/-1/0?rows=0", 400),
        ("tiles/0/-1?rows=0", 400),
        ("tiles/50/18446744073709551615?rows=0", 200),
        ("tiles/0/99999999999999999999?rows=0", 400),
        ("tiles/20/0", 400),
        ("tiles/20/0?rows=x", 400),
        ("tiles/20/0?rows=5-2", 400),
        ("tiles/20/0?rows=0-4294967295", 413),
        ("tiles/20/0?rows=0-255", 200),
        ("tiles/20/0?rows=0-256", 413),
        ("tiles/20/0?rows=4294967295", 200),
        ("tiles/20/0?rows=0&more=1", 400),
        ("counters/51/0?rows=0", 400),
        ("overview?from=0&to=1000&bins=4097", 400),
        ("overview?from=0&to=1000&bins=0", 400),
        ("overview?from=5&to=5&bins=1", 400),
        ("overview?from=0&to=31536000000000000&bins=100", 200),
        (
            "overview?from=-9223372036854775808&to=9223372036854775807&bins=4096",
            200,
        ),
        ("names?ids=0-1000", 413),
        ("names?ids=4294967295", 200),
        ("slice?row=0&index=4294967295", 404),
        ("slice?row=4294967295&index=0", 404),
        ("slice?row=-1&index=0", 400),
        ("slice_at?key=nothing&start=0", 404),
        (
            "hit?row=0&at=-9223372036854775808&tolerance=9223372036854775807",
            200,
        ),
        (
            "hit?row=0&at=9223372036854775807&tolerance=9223372036854775807",
            200,
        ),
        ("hit?row=0&at=0&tolerance=-1", 400),
        ("neighbour?row=0&index=0&direction=up", 400),
        ("area?from=0&to=0", 200),
        ("area?from=10&to=0", 400),
        ("area?from=-9223372036854775808&to=9223372036854775807", 200),
        ("search?q=", 400),
        ("search?q=(&regex=1", 400),
        ("search?q=(a%7B1000%7D)%7B1000%7D&regex=1", 400),
        ("search?q=(a*)*b&regex=1", 200),
        ("search?q=a&limit=1001", 400),
        ("search?q=a&limit=0", 200),
        ("search?q=a&offset=18446744073709551615", 200),
        ("search?q=a&case=2", 400),
        ("analysis?steps=2-1", 400),
        ("analysis?steps=1000-2000", 404),
        ("analysis?steps=x", 400),
        ("collectives?limit=1001", 400),
        ("collectives?sort=nothing", 400),
        ("collectives?offset=18446744073709551615", 200),
        ("export?format=exe", 400),
        ("export?format=csv", 400),
        ("export?format=csv&table=..%2fx", 400),
        ("export?format=chrome&table=kernels", 400),
        ("export?format=chrome&from=5&to=1", 400),
        ("nothing", 404),
    ] {
        let answer = viewer.get(&format!("{base}/{path}"));
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        if status >= 400 {
            let error = answer.json()["error"].as_str().expect("a reason").to_owned();
            assert!(
                !error.is_empty() && error.lines().count() == 1,
                "{path}: {error:?}"
            );
        }
    }
    let long = "a".repeat(2000);
    assert_eq!(viewer.get(&format!("{base}/search?q={long}")).status, 400);
    let longer = "a".repeat(20_000);
    assert_eq!(viewer.get(&format!("{base}/search?q={longer}")).status, 414);
    assert_eq!(viewer.get(&format!("/api/rec/{id}/1/rows")).status, 410);
    assert_eq!(viewer.get(&format!("/api/rec/{id}/x/rows")).status, 400);
    // What is no request at all ends the connection, and nobody else's.
    for wrong in [
        b"\r\n\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        [
            b"GET / HTTP/1.1\r\nX: ".as_slice(),
            &vec![b'a'; 200_000],
            b"\r\n\r\n",
        ]
        .concat(),
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", viewer.port)).unwrap();
        drop(stream.write_all(&wrong));
        drop(stream.shutdown(std::net::Shutdown::Write));
        drop(stream.read_to_end(&mut Vec::new()));
    }
    assert_eq!(viewer.get("/api/recordings").status, 200);
}

#[test]
fn downloads() {
    let viewer = view(&[recording()]);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    let info = viewer.json(&format!("/api/rec/{id}/info"));
    let events = |answer: &Answer| {
        let json = answer.json();
        let all = json["traceEvents"].as_array().expect("events");
        all.iter().filter(|event| event["cat"] == "kernel").count()
    };
    let whole = viewer.get(&format!("{base}/export?format=chrome"));
    assert_eq!(
        whole.header("content-disposition"),
        Some("attachment; filename=\"ddp_run.json\"")
    );
    let first = &info["steps"][1];
    let part = viewer.get(&format!(
        "{base}/export?format=chrome&from={}&to={}",
        first["begin"], first["end"]
    ));
    assert_eq!(
        part.header("content-disposition"),
        Some("attachment; filename=\"ddp_run.part.json\"")
    );
    let (all, some) = (events(&whole), events(&part));
    assert!(0 < some && some < all, "{some} of {all}");
    let packed = viewer.get(&format!("{base}/export?format=chrome&gzip=1"));
    assert_eq!(&packed.body[..2], [0x1f, 0x8b]);
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&packed.body[..])
        .read_to_end(&mut plain)
        .unwrap();
    assert_eq!(plain, whole.body);
    // The analysis is that of the command line.
    let analysis = viewer.get(&format!("{base}/export?format=analysis")).json();
    assert_eq!(analysis, common::analysis(recording()));
    let table = viewer.get(&format!("{base}/export?format=csv&table=kernels"));
    assert_eq!(table.header("content-type"), Some("text/csv; charset=utf-8"));
    assert!(table.text().starts_with("rank,device_index,name,kind,"));
    assert_eq!(
        viewer
            .get(&format!("{base}/export?format=csv&table=hangs"))
            .status,
        404
    );
    // Every table that the analysis writes has a name here.
    let folder = tempfile::tempdir().unwrap();
    expect_status(
        gputrace()
            .arg("analyze")
            .arg(recording())
            .arg("--tables")
            .arg(folder.path()),
        0,
    );
    let known = info["capabilities"]["tables"].as_array().unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap().flatten();
    for file in files
        .map(|file| file.path())
        .filter(|file| file.extension().is_some_and(|end| end == "csv"))
    {
        let name = file.file_stem().unwrap().to_string_lossy().into_owned();
        assert!(known.iter().any(|table| *table == name.as_str()), "{name}");
        let same = viewer.get(&format!("{base}/export?format=csv&table={name}"));
        assert_eq!(same.body, std::fs::read(&file).unwrap(), "{name}");
    }
}

#[test]
fn ports() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut command = gputrace();
    command
        .args(["view", "--no-open", "--port", &port.to_string()])
        .arg(recording());
    let refused = expect_status(&mut command, 2);
    let line = one_line(&refused);
    assert!(line.contains(&format!("port {port} is in use")), "{line}");
    assert!(refused.stdout.is_empty());
    // Without --port they follow each other.
    let (first, second) = (view(&[recording()]), view(&[recording()]));
    assert_ne!(first.port, second.port);
    assert_eq!(second.get("/api/recordings").status, 200);
    // The cookie of one is none of the other's.
    let cookie = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nCookie: gputrace-{}={TOKEN}\r\nConnection: close\r\n\r\n",
        second.port, first.port
    );
    assert_eq!(second.raw(cookie.as_bytes()).status, 401);
}

#[test]
fn it_ends_when_it_is_told_to() {
    for signal in ["-INT", "-TERM"] {
        let mut viewer = view(&[recording()]);
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
    command.args(["view", "--no-open"]).arg(recording());
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
            .arg(recording())
            .env("GPUTRACE_TOKEN", wrong);
        assert!(one_line(&expect_status(&mut command, 2)).contains(word));
    }
}

#[test]
fn beyond_loopback_it_warns_and_keeps_the_token() {
    let mut command = gputrace();
    command
        .args(["view", "--no-open", "--listen", "0.0.0.0", "--host-name", "Node7"])
        .arg(recording());
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
    assert!(said.contains("other machines can reach this port"), "{said}");
}

#[test]
fn bad_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Named alone, what can't be read is an error of the command.
    let mut missing = gputrace();
    missing.args(["view", "--no-open"]).arg(path("nothing"));
    assert!(one_line(&expect_status(&mut missing, 2)).contains("no such file or folder"));
    std::fs::write(path("notes.txt"), "not a trace").unwrap();
    let mut text = gputrace();
    text.args(["view", "--no-open"]).arg(path("notes.txt"));
    one_line(&expect_status(&mut text, 2));
    std::fs::create_dir(path("empty")).unwrap();
    let mut empty = gputrace();
    empty.args(["view", "--no-open"]).arg(path("empty"));
    assert!(one_line(&expect_status(&mut empty, 2)).contains("not a gputrace recording"));
    // Beside others they are told of.
    std::fs::create_dir(path("cut")).unwrap();
    std::fs::write(path("cut/manifest.json"), "{\"format\": \"gpu").unwrap();
    let nothing_in_it = path("no rows");
    std::fs::create_dir(&nothing_in_it).unwrap();
    let manifest = std::fs::read_to_string(recording().join("manifest.json")).unwrap();
    std::fs::write(nothing_in_it.join("manifest.json"), manifest).unwrap();
    let viewer = view(&[recording(), &path("cut"), &nothing_in_it]);
    let broken = viewer.id("cut");
    let until = Instant::now() + Duration::from_secs(20);
    let answer = loop {
        let answer = viewer.get(&format!("/api/rec/{broken}/info"));
        if answer.status != 503 {
            break answer;
        }
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(answer.status, 404);
    assert!(
        answer.text().contains("not a gputrace recording"),
        "{}",
        answer.text()
    );
    let list = viewer.json("/api/recordings");
    let states: Vec<&str> = list["recordings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["state"].as_str().unwrap())
        .collect();
    assert_eq!(
        states.iter().filter(|state| **state == "failed").count(),
        1,
        "{list}"
    );
    // A recording without anything in it is one all the same: everything about it can be asked.
    let id = viewer.id("no rows");
    let base = viewer.base(&id);
    for path in [
        "rows",
        "analysis",
        "collectives",
        "area?from=0&to=10",
        "search?q=a",
        "overview?from=0&to=10&bins=5",
        "tiles/5/0?rows=0",
        "export?format=chrome",
        "names?ids=1",
    ] {
        assert_eq!(viewer.get(&format!("{base}/{path}")).status, 200, "{path}");
    }
    assert_eq!(viewer.get(&format!("{base}/slice?row=0&index=0")).status, 404);
    let both = viewer.get(&format!("/api/compare?a={id}&b={}", viewer.id("ddp run")));
    assert_eq!(both.status, 200, "{}", both.text());
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn serve(folder: &Path) -> Viewer {
    let mut command = gputrace();
    command
        .args(["serve", "--dir"])
        .arg(folder)
        .stderr(std::process::Stdio::null());
    Viewer::start(&mut command)
}

#[test]
fn a_folder_of_recordings() {
    let folder = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    copy(recording(), &folder.path().join("first"));
    copy(recording(), &outside.path().join("secret"));
    std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("link")).unwrap();
    let viewer = serve(folder.path());
    let names = || -> Vec<(String, String)> {
        let list = viewer.json("/api/recordings");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let all = list["recordings"].as_array().unwrap().iter();
        all.map(|one| (text(&one["name"]), text(&one["state"]))).collect()
    };
    let pair = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(
        names(),
        [pair("first", "unopened")],
        "what a link leads out to is not listed"
    );
    let list = viewer.json("/api/recordings");
    let one = &list["recordings"][0];
    assert_eq!(
        (&one["simulated"], &one["growing"], &one["ranks"]),
        (&Value::from(true), &Value::from(false), &Value::from(2))
    );
    assert!(one["bytes"].as_u64().unwrap() > 1000 && one["events"].as_u64().unwrap() > 100);
    let id = viewer.id("first");
    viewer.info(&id, |info| info["analysed"] == true);
    assert_eq!(names(), [pair("first", "ready")]);
    // A new one is there without being told of, and one that vanishes stays for those who look at it.
    copy(recording(), &folder.path().join("deeper/second"));
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(
        names(),
        [pair("deeper/second", "unopened"), pair("first", "ready")]
    );
    std::fs::remove_dir_all(folder.path().join("first")).unwrap();
    std::fs::remove_dir_all(folder.path().join("deeper")).unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(names(), [pair("first", "ready")]);
    let base = viewer.base(&id);
    assert_eq!(viewer.get(&format!("{base}/analysis")).status, 200);
    let until = Instant::now() + Duration::from_secs(10);
    while viewer.json(&format!("/api/rec/{id}/live"))["error"].is_null() {
        assert!(Instant::now() < until, "nobody says that it is gone");
        std::thread::sleep(Duration::from_millis(100));
    }
    let mut wrong = gputrace();
    wrong.args(["serve", "--dir"]).arg(folder.path().join("nothing"));
    one_line(&expect_status(&mut wrong, 2));
}

#[test]
fn a_recording_that_grows() {
    let folder = tempfile::tempdir().unwrap();
    let viewer = serve(folder.path());
    assert_eq!(
        viewer.json("/api/recordings")["recordings"],
        Value::Array(Vec::new())
    );
    let path = folder.path().join("run");
    let mut record = gputrace();
    record.args(["record", "--device", "sim", "-o"]).arg(&path);
    record.args(["--", "workload", "ddp", "--ranks", "2", "--steps", "150"]);
    record
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut recorder = record.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let id = loop {
        let list = viewer.json("/api/recordings");
        if let Some(one) = list["recordings"].as_array().unwrap().first()
            && one["growing"] == true
        {
            break one["id"].as_str().unwrap().to_owned();
        }
        assert!(
            Instant::now() < until && recorder.try_wait().unwrap().is_none(),
            "{list}"
        );
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut generations = Vec::new();
    let mut events = Vec::new();
    loop {
        let ended = recorder.try_wait().unwrap().is_some();
        let answer = viewer.get(&format!("/api/rec/{id}/live"));
        assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
        if answer.status == 200 {
            let live = answer.json();
            let generation = live["generation"].as_u64().unwrap();
            if generations.last() != Some(&generation) {
                assert!(generations.last().is_none_or(|last| *last < generation));
                generations.push(generation);
                events.push(live["events"].as_u64().unwrap());
                // What is said of a generation can be asked of it.
                let rows = viewer.get(&format!("/api/rec/{id}/{generation}/rows"));
                assert!(matches!(rows.status, 200 | 410));
                let info = viewer.get(&format!("/api/rec/{id}/info")).json();
                let unclosed = |loss: &Value| loss["what"].as_str().unwrap().contains("clos");
                let losses = info["losses"].as_array().unwrap();
                assert!(
                    info["growing"] == false || !losses.iter().any(unclosed),
                    "what still runs is not lost: {losses:?}"
                );
            }
            if ended && live["growing"] == false && live["analysed"] == true {
                break;
            }
        }
        assert!(
            Instant::now() < until + Duration::from_secs(60),
            "{generations:?}"
        );
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(generations.len() >= 3, "{generations:?}");
    assert!(events.is_sorted() && events.first() < events.last(), "{events:?}");
    let whole = common::analysis(&path);
    let base = viewer.base(&id);
    let analysis = viewer.json(&format!("{base}/analysis"));
    assert_eq!(analysis["ranks"][0]["busy_ns"], whole["ranks"][0]["busy_ns"]);
}

#[test]
fn many_clients_and_slow_ones() {
    let viewer = view(&[recording()]);
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
fn help_says_how() {
    let help = expect_status(gputrace().args(["view", "--help"]), 0);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for word in [
        "--no-open",
        "--port",
        "--listen",
        "--host-name",
        "GPUTRACE_TOKEN",
        "openapi.json",
    ] {
        assert!(text.contains(word), "{word}");
    }
    let wrong = expect_status(gputrace().arg("view"), 2);
    assert!(stderr(&wrong).contains("PATH"));
}
