//! A client's connection that notices when the client has gone, also while nothing is read from it.
//!
//! hyper looks for a client's end only where nothing that it sent before is left to be worked on: of a client that sends many
//! requests in one go and leaves, all would be answered, one after another.

use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A connection that others may look at while one has it.
#[derive(Clone)]
pub(super) struct ClientStream(Arc<TcpStream>);

impl ClientStream {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self(Arc::new(stream))
    }

    /// Ends when the client has closed its side, wholly or for what it sends: whoever still wants an answer keeps it open.
    pub(super) async fn closed(&self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        loop {
            // Whoever waits for urgent bytes, which nobody is sent, hears of the end, and not of bytes that wait.
            match self.0.ready(tokio::io::Interest::PRIORITY).await {
                Ok(ready) if !ready.is_read_closed() => {
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
                _ => return,
            }
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        std::future::pending().await
    }

    /// The first byte that the client sends, which is left there; nothing where it sends none.
    pub(super) async fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok((self.0.peek(&mut byte).await? > 0).then_some(byte[0]))
    }

    fn write<R>(&self, context: &mut Context<'_>, write: impl Fn() -> io::Result<R>) -> Poll<io::Result<R>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.write(context, || self.0.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, || self.0.try_write_vectored(buffers))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // SAFETY: it takes integers alone, and the descriptor is open as long as we are.
        let done = unsafe { libc::shutdown(self.0.as_raw_fd(), libc::SHUT_WR) };
        Poll::Ready(if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        })
    }
}
