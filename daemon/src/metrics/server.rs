//! Answering Prometheus: GET /metrics, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For the whole question, and for the answer.
const PATIENCE: Duration = Duration::from_secs(3);
/// So long no call is taken when one failed.
const NO_DESCRIPTORS: Duration = Duration::from_millis(100);
/// A question's head, at the most.
const MOST_HEAD_BYTES: usize = 8 << 10;

/// What is told: made by the daemon's thread, taken by the one that answers.
pub type Text = Arc<Mutex<Arc<str>>>;

/// Answers at an address; gives what is told there, and where that is.
///
/// # Errors
/// When the address can't be had.
pub fn start(address: SocketAddr) -> io::Result<(Text, SocketAddr)> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let text: Text = Arc::new(Mutex::new(Arc::from("")));
    let told = text.clone();
    std::thread::Builder::new()
        .name("metrics".to_owned())
        .spawn(move || {
            // One after another: who is slow is cut off, and Prometheus asks seldom.
            for stream in listener.incoming() {
                let Ok(stream) = stream else {
                    // No descriptor is left: it would fail again at once.
                    std::thread::sleep(NO_DESCRIPTORS);
                    continue;
                };
                let text = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Who went away meanwhile asks again.
                drop(answer(stream, &text));
            }
        })?;
    Ok((text, address))
}

fn answer(mut stream: TcpStream, text: &str) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || head.len() > MOST_HEAD_BYTES {
            return Ok(());
        }
        stream.set_read_timeout(Some(left))?;
        let mut some = [0; 1024];
        match stream.read(&mut some)? {
            0 => return Ok(()),
            read => head.extend_from_slice(&some[..read]),
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let (status, body) = match line {
        line if line.starts_with(b"GET /metrics ") || line.starts_with(b"GET /metrics?") => ("200 OK", text),
        line if line.starts_with(b"GET ") => ("404 Not Found", "metrics are at /metrics\n"),
        _ => ("405 Method Not Allowed", "GET /metrics\n"),
    };
    let whole = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    );
    write_until(&mut stream, whole.as_bytes(), Instant::now() + PATIENCE)
}

/// Writes all of it; who reads a little at a time has no longer than who reads nothing.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_slowly_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let reader = std::thread::spawn(move || {
            let mut stream = TcpStream::connect(address).expect("connected");
            let mut some = [0; 1 << 16];
            while stream.read(&mut some).is_ok_and(|read| read > 0) {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let (mut stream, _) = listener.accept().expect("a caller");
        let begun = Instant::now();
        let much = vec![b'x'; 256 << 20];
        let written = write_until(&mut stream, &much, begun + Duration::from_millis(300));
        assert!(written.is_err());
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        drop(stream);
        reader.join().expect("ended");
    }
}
