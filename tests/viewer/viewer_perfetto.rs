//! "Open in Perfetto": the page hands a trace to another origin's window in the same browser, and to nobody else.

use crate::common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::browser::{self, Browser};
use common::http::{Viewer, small_recording};
use common::{expect_status, gputrace};

/// Listens as Perfetto's page does, once it is loaded, and tells the test what it got.
const UI: &str = r#"<!doctype html><title>a Perfetto</title><script>
setTimeout(() => addEventListener("message", (event) => {
  if (event.data === "PING") return void event.source.postMessage("PONG", event.origin);
  const { buffer, title, fileName, localOnly } = event.data.perfetto;
  const told = new URLSearchParams({ title, fileName, localOnly, origin: event.origin, hash: location.hash });
  fetch(`/got?${told}`, { method: "POST", body: buffer }).then(() => close());
}), 400);
</script>"#;

/// What it got: the query, and the trace.
type Got = (String, Vec<u8>);

/// Answers one request; what is posted goes to the test.
fn answer(stream: TcpStream, got: &Sender<Got>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    if let Some(rest) = first.strip_prefix("POST /got?") {
        let query = rest.split(' ').next().unwrap_or_default().to_owned();
        drop(got.send((query, body)));
    }
    let page = if first.starts_with("GET / ") { UI } else { "" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        page.len()
    );
    let stream = reader.get_mut();
    stream.write_all(head.as_bytes())?;
    stream.write_all(page.as_bytes())
}

/// A page that answers as Perfetto's does, and what it is given.
fn perfetto() -> (String, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("its address"));
    let (sender, got) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            // A browser opens connections that it never uses.
            std::thread::spawn(move || drop(answer(stream, &sender)));
        }
    });
    (url, got)
}

fn opened(program: &str, ui: &str) -> (Viewer, Browser) {
    let mut command = gputrace();
    command
        .args(["view", "--no-open", "--perfetto-ui", ui])
        .arg(small_recording());
    let viewer = Viewer::start(command.stderr(Stdio::null()));
    let mut browser = Browser::start(program, 1280, 800);
    browser.open(&viewer.url);
    browser.wait_for("viewer.state().loaded && viewer.page.info.analysed && viewer.state().settled");
    (viewer, browser)
}

/// Chooses an entry of the menu of exports, and clicks on what is offered unless the window opened at once.
fn choose(browser: &mut Browser, entry: &str, got: &Receiver<Got>) -> Got {
    browser.click_on("document.querySelector('#actions [aria-haspopup]')");
    browser.click_on(&format!(
        "[...document.querySelectorAll('.menu button')].find((one) => one.textContent === '{entry}')"
    ));
    browser.wait_for(
        "!document.querySelector('.p-perfetto') || !document.querySelector('.p-perfetto .p-button').disabled \
         || document.querySelector('.p-perfetto [role=status]').textContent.startsWith('Waiting')",
    );
    if browser.evaluate("document.querySelector('.p-perfetto .p-button')?.disabled") == false {
        browser.click_on("document.querySelector('.p-perfetto .p-button')");
    }
    browser.wait_for("!document.querySelector('.p-perfetto')");
    got.recv_timeout(Duration::from_secs(40))
        .expect("the window got a trace")
}

#[test]
fn a_window_of_another_origin_gets_the_trace() {
    let Some(program) = browser::program() else { return };
    let (ui, got) = perfetto();
    let (viewer, mut browser) = opened(program, &ui);
    let id = viewer.id("ddp run");
    let base = viewer.base(&id);
    let info = viewer.info(&id, |_| true);
    assert_eq!(info["capabilities"]["perfetto_ui"], ui.as_str());
    let formats = info["capabilities"]["exports"].to_string();
    let format = if formats.contains("\"perfetto\"") {
        "perfetto"
    } else {
        "chrome"
    };

    let (query, trace) = choose(&mut browser, "Open in Perfetto", &got);
    assert_eq!(
        trace,
        viewer.get(&format!("{base}/export?format={format}")).body,
        "the same as the download"
    );
    for told in [
        "title=ddp+run+%28simulated+GPUs%29",
        "fileName=ddp_run",
        "localOnly=true",
        &format!("origin=http%3A%2F%2F127.0.0.1%3A{}", viewer.port),
        "hash=%23%21%2F",
    ] {
        assert!(query.contains(told), "{told} in {query}");
    }

    // What is in view, a part of it. Pages behind others do not draw.
    browser.call("Page.bringToFront", &serde_json::json!({}));
    browser.evaluate("viewer.page.timeline.over.focus()");
    for _ in 0..4 {
        browser.press("KeyW", "w");
    }
    browser.wait_for("viewer.state().settled");
    let (query, part) = choose(&mut browser, "Open in Perfetto, visible range", &got);
    assert!(part.len() < trace.len(), "{} of {}", part.len(), trace.len());
    assert!(query.contains("%28part%29"), "{query}");

    assert_eq!(browser.evaluate("viewer.state().errors"), serde_json::json!([]));
    assert_eq!(browser.complaints, Vec::<String>::new());
    let own = format!("http://127.0.0.1:{}/", viewer.port);
    let strangers = browser.requests.iter().filter(|request| {
        !request.starts_with(&own)
            && !["data:", "blob:", "about:"]
                .iter()
                .any(|scheme| request.starts_with(scheme))
    });
    assert_eq!(strangers.collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn an_address_that_is_none_is_refused() {
    for (url, command) in [("javascript:alert(1)", "view"), ("ui.perfetto.dev", "serve")] {
        let mut refused = gputrace();
        refused.args([command, "--perfetto-ui", url]);
        if command == "view" {
            refused.arg(small_recording());
        }
        let output = expect_status(&mut refused, 2);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            error.contains("--perfetto-ui") && error.contains("http://HOST:PORT"),
            "{error}"
        );
    }
}
