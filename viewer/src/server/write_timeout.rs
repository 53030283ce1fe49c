//! A connection whose client reads nothing for too long is closed: responses that wait for it take our memory.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use tokio::time::{Instant, Sleep, sleep};

use super::connections::Connection;

/// A stream that fails when a write makes no progress for a while.
pub struct WriteTimeout<T> {
    stream: T,
    /// Told of progress.
    connection: Option<Arc<Connection>>,
    timeout: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<T> WriteTimeout<T> {
    /// Wraps a stream. Writes that make no progress for `timeout` fail; `connection` is told of progress.
    pub fn new(stream: T, timeout: Duration, connection: impl Into<Option<Arc<Connection>>>) -> Self {
        Self {
            stream,
            connection: connection.into(),
            timeout,
            waiting: None,
        }
    }

    /// Passes on what a write of bytes came to, but for one that waits too long.
    fn judge_write(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        // Nothing else tells that a client takes something: nothing is also written, and flushed, for every byte it sends.
        if let Some(connection) = &self.connection {
            match written {
                Poll::Ready(Ok(0) | Err(_)) => {}
                Poll::Ready(Ok(_)) => connection.progressed(),
                Poll::Pending => connection.stalls(),
            }
        }
        self.check(context, written)
    }

    /// Passes on what a write or a flush came to, but for one that waits too long.
    fn check<R>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if waiting.as_mut().poll(context).is_ready() {
            // Should anybody ask again, the answer is at once the same.
            waiting.as_mut().reset(Instant::now());
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<T: Read + Unpin> Read for WriteTimeout<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: Write + Unpin> Write for WriteTimeout<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge_write(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.check(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        self.judge_write(context, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::connections::Connections;

    /// Takes so many bytes and no more.
    struct Narrow(usize);

    impl Write for Narrow {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            if bytes.is_empty() {
                return Poll::Ready(Ok(0));
            }
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            if taken == 0 {
                Poll::Pending
            } else {
                Poll::Ready(Ok(taken))
            }
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    fn block_on(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(test);
    }

    #[test]
    fn only_what_is_taken_counts() {
        block_on(async {
            let slot = Connections::new(1).acquire().await.unwrap();
            let connection = slot.connection.clone();
            let mut stream = WriteTimeout::new(Narrow(3), Duration::from_secs(60), connection.clone());
            let rest = Duration::from_millis(20);
            std::thread::sleep(rest);
            // As happens whenever a client sends a byte of its question.
            std::future::poll_fn(|context| Pin::new(&mut stream).poll_flush(context))
                .await
                .unwrap();
            std::future::poll_fn(|context| Pin::new(&mut stream).poll_write(context, b""))
                .await
                .unwrap();
            assert!(connection.idle().unwrap() >= rest);
            let begun = Instant::now();
            std::future::poll_fn(|context| Pin::new(&mut stream).poll_write(context, b"abc"))
                .await
                .unwrap();
            assert!(connection.idle().unwrap() <= begun.elapsed());
            // Of an answer that nobody takes a client is idle, of one that is being made it is not.
            connection.begins();
            assert_eq!(connection.idle(), None);
            let write = std::future::poll_fn(|context| {
                let written = Pin::new(&mut stream).poll_write(context, b"d");
                assert!(written.is_pending());
                Poll::Ready(())
            });
            write.await;
            assert!(connection.idle().is_some());
            connection.progressed();
            assert_eq!(connection.idle(), None);
        });
    }

    #[test]
    fn a_client_that_takes_nothing_is_left() {
        block_on(async {
            let mut stream = WriteTimeout::new(Narrow(3), Duration::from_millis(20), None);
            let write = |stream: &mut WriteTimeout<Narrow>, context: &mut Context<'_>| {
                Pin::new(stream).poll_write(context, b"ab")
            };
            let first = std::future::poll_fn(|context| write(&mut stream, context)).await;
            assert_eq!(first.unwrap(), 2);
            let second = std::future::poll_fn(|context| write(&mut stream, context)).await;
            assert_eq!(second.unwrap(), 1);
            let third = std::future::poll_fn(|context| write(&mut stream, context)).await;
            assert_eq!(third.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
