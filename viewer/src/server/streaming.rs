//! Bodies that are sent while they are written.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use http_body::Frame;
use tokio::sync::mpsc;

/// Bytes that are handed on at once.
const CHUNK: usize = 1 << 16;
/// Chunks that wait for a client at most.
const CHUNKS: usize = 4;

type Chunk = io::Result<Bytes>;

/// The body that `write` writes, on a thread of its own. What fails before a byte was written is an error here; what fails
/// later cuts the body, so that nobody takes a part of it for the whole.
pub(super) async fn body(
    write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static,
) -> io::Result<Body> {
    let (chunks, mut body) = mpsc::channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let mut out = Writer::new(chunks);
        let done = write(&mut out).and_then(|()| out.send());
        out.end(done.err());
    });
    let first = body.recv().await.transpose()?;
    Ok(Body::new(Begun { chunks: body, first }))
}

/// Hands on what is written in chunks, and waits where the client is slow. A client that went away is an error.
pub(super) struct Writer {
    chunks: mpsc::Sender<Chunk>,
    buffer: Vec<u8>,
    /// Whether nothing more comes: a body that just stops would look whole.
    ended: bool,
}

impl Writer {
    fn new(chunks: mpsc::Sender<Chunk>) -> Self {
        Self {
            chunks,
            buffer: Vec::with_capacity(CHUNK),
            ended: false,
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let full = std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK));
        self.chunks
            .blocking_send(Ok(Bytes::from(full)))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn end(mut self, error: Option<io::Error>) {
        self.ended = true;
        if let Some(error) = error {
            // Whether the client has gone is nobody's concern any more.
            drop(self.chunks.blocking_send(Err(error)));
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Who writes has panicked.
        if !self.ended {
            let error = io::Error::other("writing it broke off: this is a mistake in gputrace");
            drop(self.chunks.blocking_send(Err(error)));
        }
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(CHUNK - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..taken]);
        if self.buffer.len() == CHUNK {
            self.send()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body of chunks, the first of which is there.
struct Begun {
    chunks: mpsc::Receiver<Chunk>,
    first: Option<Bytes>,
}

impl HttpBody for Begun {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let chunk = self.chunks.poll_recv(context);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_goes_away_ends_the_writing() {
        let (chunks, body) = mpsc::channel(1);
        drop(body);
        let mut out = Writer::new(chunks);
        assert_eq!(
            out.write_all(&vec![0; CHUNK]).unwrap_err().kind(),
            io::ErrorKind::BrokenPipe
        );
    }

    /// What a client gets: all bytes, or that they are not all.
    fn received(write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static) -> Option<usize> {
        let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
        runtime.block_on(async {
            let body = body(write).await.ok()?;
            let bytes = axum::body::to_bytes(body, usize::MAX).await.ok()?;
            Some(bytes.len())
        })
    }

    #[test]
    fn a_part_is_never_taken_for_the_whole() {
        for len in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 9 * CHUNK] {
            let bytes = move |out: &mut Writer| out.write_all(&vec![7; len]);
            assert_eq!(received(bytes), Some(len));
            let fails = move |out: &mut Writer| {
                bytes(out)?;
                Err(io::ErrorKind::NotFound.into())
            };
            assert_eq!(received(fails), None, "{len}");
            let panics = move |out: &mut Writer| {
                bytes(out)?;
                panic!("as it must not");
            };
            assert_eq!(received(panics), None, "{len}");
        }
    }
}
