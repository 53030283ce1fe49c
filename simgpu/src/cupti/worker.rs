//! The thread that hands buffers back to a client, in the order in which they got full, as CUPTI's own does.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What the thread is told.
pub(super) enum Delivery<T> {
    /// A buffer to hand back.
    Buffer(T),
    /// Asks to be told that everything before it has been handed back.
    Fence(Sender<()>),
}

/// The way to the thread, which lives as long as the process.
pub(super) struct Worker<T>(Sender<Delivery<T>>);

impl<T: Send + 'static> Worker<T> {
    /// Starts the thread with what it does. Where there is none to be had, what it is given is lost.
    pub fn start(work: impl FnOnce(Receiver<Delivery<T>>) + Send + 'static) -> Self {
        let (sender, deliveries) = channel();
        let started = std::thread::Builder::new()
            .name("simgpu-cupti".to_owned())
            .spawn(move || work(deliveries));
        if let Err(error) = started {
            eprintln!("simgpu: no thread for CUPTI: {error}");
        }
        Self(sender)
    }

    /// Has a buffer handed back.
    pub fn hand_over(&self, buffer: T) {
        drop(self.0.send(Delivery::Buffer(buffer)));
    }

    /// Waits until the client has every buffer.
    pub fn catch_up(&self) {
        let (reached, wait) = channel();
        if self.0.send(Delivery::Fence(reached)).is_ok() {
            // A client that takes longer than this is left to its own.
            let _ = wait.recv_timeout(Duration::from_secs(5));
        }
    }
}
