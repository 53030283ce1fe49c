//! A running `gputrace view` or `serve`, and requests to it byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{expect_status, gputrace};

/// A token as a script would set it.
pub const TOKEN: &str = "0123456789abcdef-test";

/// A server of ours; it ends with the value.
pub struct Viewer {
    pub child: Child,
    pub port: u16,
    /// The line that it printed.
    pub url: String,
}

/// A recording of `ddp` on two simulated GPUs, made once a test program.
pub fn small_recording() -> &'static Path {
    static RECORDING: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    super::schedule::computes();
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

/// `gputrace view` of some paths.
#[track_caller]
pub fn view(paths: &[&Path]) -> Viewer {
    let mut command = gputrace();
    command.args(["view", "--no-open"]).args(paths);
    Viewer::start(command.stderr(Stdio::null()))
}

/// `gputrace serve` of a folder.
#[track_caller]
pub fn serve(folder: &Path) -> Viewer {
    let mut command = gputrace();
    command.args(["serve", "--dir"]).arg(folder);
    Viewer::start(command.stderr(Stdio::null()))
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Viewer {
    /// Starts a server by its command and waits for its address.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .env("GPUTRACE_TOKEN", TOKEN)
            .env_remove("SSH_CONNECTION")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut url = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut url).expect("a line");
        let url = url.trim_end().to_owned();
        let port = url
            .split_once("://")
            .and_then(|(_, rest)| rest.split('/').next())
            .and_then(|host| host.rsplit_once(':'))
            .and_then(|(_, port)| port.parse().ok())
            .unwrap_or_else(|| panic!("{command:?} printed {url:?}"));
        Self { child, port, url }
    }

    /// The server's process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends bytes and gives everything that comes back until the server closes.
    pub fn raw(&self, request: &[u8]) -> Answer {
        raw(self.port, request)
    }

    /// `GET path` with the token.
    pub fn get(&self, path: &str) -> Answer {
        self.raw(
            format!(
                "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nAuthorization: Bearer {TOKEN}\r\nConnection: close\r\n\r\n",
                self.port
            )
            .as_bytes(),
        )
    }

    /// The cookie of a browser that shows the token, as it sends it: `gputrace-PORT=SECRET`.
    #[track_caller]
    pub fn let_in(&self) -> String {
        let host = format!("127.0.0.1:{}", self.port);
        let entered = self.raw(
            format!("GET /?token={TOKEN} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes(),
        );
        assert_eq!(entered.status, 303, "{}", entered.text());
        let cookie = entered.header("set-cookie").expect("a cookie");
        cookie.split(';').next().unwrap_or_default().to_owned()
    }

    /// The same where the answer has to be there and JSON.
    #[track_caller]
    pub fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    /// The number of the recording with a name.
    #[track_caller]
    pub fn id(&self, name: &str) -> String {
        let list = self.json("/api/recordings");
        let all = list["recordings"].as_array().expect("a list");
        let found = all.iter().find(|recording| recording["name"] == name);
        let found = found.unwrap_or_else(|| panic!("{name} is not in {list}"));
        found["id"].as_str().expect("a number").to_owned()
    }

    /// The info of a recording, as soon as it is there and `enough` for the test.
    #[track_caller]
    pub fn info(&self, id: &str, enough: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.get(&format!("/api/rec/{id}/info"));
            if answer.status == 200 && enough(&answer.json()) {
                return answer.json();
            }
            assert!(
                answer.status == 200 || answer.status == 503,
                "{} {}",
                answer.status,
                answer.text()
            );
            assert!(Instant::now() < until, "not there in a minute: {}", answer.text());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The paths of an analysed recording begin with this.
    #[track_caller]
    pub fn base(&self, id: &str) -> String {
        let info = self.info(id, |info| info["analysed"] == true);
        format!("/api/rec/{id}/{}", info["generation"])
    }

    /// Sends a signal and gives the status.
    pub fn end(&mut self, signal: &str) -> ExitStatus {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().expect("kill");
        assert!(sent.success());
        self.child.wait().expect("its status")
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Sends bytes to a port and reads one answer.
pub fn raw(port: u16, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a timeout");
    stream.write_all(request).expect("it takes the request");
    let mut bytes = Vec::new();
    // A server that refuses may close before it has read everything.
    drop(stream.read_to_end(&mut bytes));
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let Some(end) = end else {
        panic!("no answer: {:?}", String::from_utf8_lossy(bytes));
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let body = bytes[end + 4..].to_vec();
    let is_chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    Answer {
        status,
        headers,
        body: if is_chunked { whole(&body) } else { body },
    }
}

/// The chunks of a body put together; panics where the last is missing.
fn whole(mut bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = bytes
            .windows(2)
            .position(|window| window == b"\r\n")
            .expect("a chunk's size");
        let size = std::str::from_utf8(&bytes[..line]).expect("a number");
        let size = usize::from_str_radix(size, 16).expect("a number");
        bytes = &bytes[line + 2..];
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&bytes[..size]);
        bytes = &bytes[size + 2..];
    }
}
