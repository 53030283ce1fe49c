//! Chromium without a window, driven by its DevTools protocol: as much as the tests of the page need.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket};

/// How long anything on the page may take: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(40);

/// The browser's program; `None`, and a line on stderr, where there is none.
pub fn program() -> Option<&'static str> {
    let names = [
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome",
    ];
    let found = names.into_iter().find(|name| {
        let mut command = Command::new(name);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if found.is_none() {
        eprintln!("SKIPPED: no Chromium here, so the page was not tried (Debian: apt-get install chromium)");
    }
    found
}

/// A browser with one page; it ends with the value.
pub struct Browser {
    child: Child,
    _profile: tempfile::TempDir,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: Option<String>,
    number: u64,
    /// Exceptions nobody caught, errors in the console, and files that were refused.
    pub complaints: Vec<String>,
    /// Addresses that were asked for.
    pub requests: Vec<String>,
}

impl Browser {
    /// Starts the browser with an empty page of this size.
    pub fn start(program: &str, width: u32, height: u32) -> Self {
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut child = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
            ])
            .args([
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-dev-shm-usage",
            ])
            .args(["--remote-debugging-port=0", "--remote-allow-origins=*"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={width},{height}"))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the browser starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.strip_prefix("DevTools listening on ")?.trim().to_owned()))
            .expect("the browser says where it listens");
        // It goes on to complain of what a machine without a desktop lacks; unread, the pipe would fill.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let (socket, _) = tungstenite::connect(address.as_str()).expect("the browser answers");
        let mut browser = Self {
            child,
            _profile: profile,
            socket,
            session: None,
            number: 0,
            complaints: Vec::new(),
            requests: Vec::new(),
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            &json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.resize(width, height);
        browser
    }

    /// Calls a method and gives its result; what is told meanwhile is noted.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        let answer = self.answer(method, parameters);
        assert!(answer.get("error").is_none(), "{method} {parameters}: {answer}");
        answer["result"].clone()
    }

    /// The same with what went wrong, if anything did.
    fn answer(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.socket
            .send(Message::text(message.to_string()))
            .expect("the browser listens");
        loop {
            let answer = self.socket.read().expect("the browser answers");
            let Ok(text) = answer.to_text() else { continue };
            let Ok(answer) = serde_json::from_str::<Value>(text) else {
                continue;
            };
            if answer["id"] == self.number {
                return answer;
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let about = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => self.complaints.push(about["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if about["type"] == "error" => {
                self.complaints.push(about["args"].to_string());
            }
            "Log.entryAdded" if about["entry"]["level"] == "error" => {
                self.complaints.push(about["entry"].to_string());
            }
            "Network.requestWillBeSent" => {
                let url = about["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            _ => {}
        }
    }

    /// Another size of the page.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Light or dark, as the user's system would say.
    pub fn prefers(&mut self, theme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// Opens an address; the page may still be loading.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({"url": url}));
    }

    /// What an expression gives; promises are waited for.
    #[track_caller]
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", &parameters);
        assert!(
            answer.get("exceptionDetails").is_none(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true; it may fail until then, as while a page loads.
    #[track_caller]
    pub fn wait_for(&mut self, expression: &str) {
        let begun = Instant::now();
        let guarded = format!("(() => {{ try {{ return !!({expression}); }} catch {{ return false; }} }})()");
        // A page that is just being left answers nothing.
        let parameters = json!({"expression": guarded, "returnByValue": true});
        while self.answer("Runtime.evaluate", &parameters)["result"]["result"]["value"] != true {
            if begun.elapsed() > PATIENCE {
                let state = self.evaluate("JSON.stringify(globalThis.viewer?.state?.() ?? null)");
                panic!(
                    "never: {expression}\nstate: {state}\ncomplaints: {:?}",
                    self.complaints
                );
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    /// Presses a key by its place on the keyboard ("KeyW", "Slash") and what it writes ("w", "/"; "" for none).
    pub fn press(&mut self, code: &str, text: &str) {
        let key = if text.is_empty() { code } else { text };
        for kind in ["keyDown", "keyUp"] {
            let mut event = json!({"type": kind, "code": code, "key": key});
            if kind == "keyDown" && !text.is_empty() {
                event["text"] = text.into();
            }
            if code == "Escape" {
                // The browser itself closes dialogs by it.
                event["windowsVirtualKeyCode"] = 27.into();
            }
            if code == "Enter" {
                event["windowsVirtualKeyCode"] = 13.into();
                event["text"] = "\r".into();
            }
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Writes a text where the focus is.
    pub fn write(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
    }

    /// Moves the pointer.
    pub fn point(&mut self, x: f64, y: f64) {
        self.call(
            "Input.dispatchMouseEvent",
            &json!({"type": "mouseMoved", "x": x, "y": y}),
        );
    }

    /// Clicks.
    pub fn click(&mut self, x: f64, y: f64) {
        self.point(x, y);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", &event);
        }
    }

    /// Clicks the middle of the element that an expression gives.
    #[track_caller]
    pub fn click_on(&mut self, element: &str) {
        self.wait_for(element);
        let place = self.evaluate(&format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{block: 'nearest'}}); const r = e.getBoundingClientRect(); \
             return [r.x + r.width / 2, r.y + r.height / 2]; }})()"
        ));
        let at = |index: usize| place[index].as_f64().expect("a place");
        self.click(at(0), at(1));
    }

    /// Drags from one place to another.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.point(from.0, from.1);
        let event = |kind: &str, (x, y): (f64, f64)| json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": 1, "clickCount": 1});
        self.call("Input.dispatchMouseEvent", &event("mousePressed", from));
        for part in 1..=4 {
            let share = f64::from(part) / 4.0;
            let place = (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share);
            self.call("Input.dispatchMouseEvent", &event("mouseMoved", place));
        }
        self.call("Input.dispatchMouseEvent", &event("mouseReleased", to));
    }

    /// Turns the wheel; `keys`: 2 for Ctrl, 8 for Shift.
    pub fn wheel(&mut self, (x, y): (f64, f64), by: f64, keys: u32) {
        let event =
            json!({"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": by, "modifiers": keys});
        self.call("Input.dispatchMouseEvent", &event);
    }

    /// A picture of the page, PNG in base64.
    pub fn screenshot(&mut self) -> String {
        let picture = self.call("Page.captureScreenshot", &json!({"format": "png"}));
        picture["data"].as_str().expect("a picture").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its children go with it.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
