//! Sending a finding to somebody: one POST of JSON, over TLS where the address says https.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// For connecting, and for each part of the rest.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of the answer this much is read.
const MOST_ANSWER_BYTES: u64 = 1024;

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    host: String,
    port: u16,
    path: String,
    /// Whether it says https.
    pub is_secure: bool,
}

impl Address {
    /// Of `http://HOST[:PORT]/PATH` or `https://`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str) -> Result<Self, String> {
        let expected = "expected http://HOST[:PORT]/PATH or https://";
        let plain = url.strip_prefix("http://").map(|rest| (rest, false));
        let secure = || url.strip_prefix("https://").map(|rest| (rest, true));
        let (rest, is_secure) = plain.or_else(secure).ok_or(expected)?;
        let (place, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| format!("{port:?} is no port"))?)
            }
            _ => (place, if is_secure { 443 } else { 80 }),
        };
        let plain = |byte: u8| byte.is_ascii_graphic();
        if host.is_empty() || !rest.bytes().all(plain) {
            return Err(expected.to_owned());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            path: format!("/{path}"),
            is_secure,
        })
    }

    /// Sends a JSON text; `tls` says whom to trust where the address says https.
    ///
    /// # Errors
    /// When nobody takes it: no connection, nobody to be trusted, or a status other than 2xx.
    pub fn post(&self, text: &str, tls: Option<&Arc<ClientConfig>>) -> io::Result<()> {
        let name = self.host.trim_matches(['[', ']']);
        let mut stream = Err(io::Error::other(format!("{}: no such host", self.host)));
        // A host may have one of IPv6 that leads nowhere.
        for address in (name, self.port).to_socket_addrs()? {
            stream = TcpStream::connect_timeout(&address, PATIENCE);
            if stream.is_ok() {
                break;
            }
        }
        let stream = stream?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        if !self.is_secure {
            return self.exchange(stream, text);
        }
        let tls = tls.ok_or_else(|| io::Error::other("nothing to trust by"))?;
        let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        let session = ClientConnection::new(tls.clone(), name).map_err(io::Error::other)?;
        self.exchange(StreamOwned::new(session, stream), text)
    }

    fn exchange(&self, mut stream: impl Read + Write, text: &str) -> io::Result<()> {
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             User-Agent: gputrace/{}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            self.port,
            text.len(),
            env!("CARGO_PKG_VERSION")
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(text.as_bytes())?;
        stream.flush()?;
        let mut answer = Vec::new();
        while !answer.contains(&b'\n') && (answer.len() as u64) < MOST_ANSWER_BYTES {
            let mut some = [0; 256];
            match stream.read(&mut some)? {
                0 => break,
                read => answer.extend_from_slice(&some[..read]),
            }
        }
        let line = String::from_utf8_lossy(&answer);
        let line = line.lines().next().unwrap_or_default();
        let status = line.split(' ').nth(1).unwrap_or_default();
        match line.starts_with("HTTP/") && status.len() == 3 && status.starts_with('2') {
            true => Ok(()),
            false => Err(io::Error::other(format!("it answered {line:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let address = Address::parse("http://node7:9000/hook?x=1").expect("one");
        assert_eq!(
            (address.host.as_str(), address.port, address.path.as_str()),
            ("node7", 9000, "/hook?x=1")
        );
        assert_eq!(Address::parse("http://[::1]/").expect("one").port, 80);
        assert_eq!(Address::parse("http://[::1]:81").expect("one").port, 81);
        let secure = Address::parse("https://hooks.example/x").expect("one");
        assert_eq!((secure.port, secure.is_secure), (443, true));
        for wrong in [
            "",
            "ftp://x/",
            "http://",
            "http://x:99999/",
            "http://x/\r\nEvil: 1",
            "http://:80/",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_sent_arrives_and_refusals_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let server = std::thread::spawn(move || {
            let mut seen = Vec::new();
            for status in ["204 No Content", "500 Oh"] {
                let (mut stream, _) = listener.accept().expect("a caller");
                let mut text = Vec::new();
                while !text.ends_with(b"{\"a\":1}") {
                    let mut some = [0; 64];
                    let read = stream.read(&mut some).expect("read");
                    text.extend_from_slice(&some[..read]);
                }
                write!(stream, "HTTP/1.1 {status}\r\n\r\n").expect("answered");
                seen.push(String::from_utf8(text).expect("text"));
            }
            seen
        });
        let address = Address::parse(&format!("http://127.0.0.1:{port}/hook")).expect("one");
        address.post("{\"a\":1}", None).expect("taken");
        let error = address.post("{\"a\":1}", None).expect_err("refused");
        assert!(error.to_string().contains("500 Oh"), "{error}");
        let seen = server.join().expect("served");
        assert!(seen[0].starts_with("POST /hook HTTP/1.1\r\n") && seen[0].contains("Content-Length: 7\r\n"));
    }
}
