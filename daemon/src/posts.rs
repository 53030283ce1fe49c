//! The thread that sends findings to the webhook: somebody who does not answer keeps nobody else waiting.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use rustls::ClientConfig;

use crate::webhook::Address;

/// Findings that wait to be sent.
const MOST_WAITING: usize = 64;
/// How often one is tried, and how long it is waited between.
const TRIES: u32 = 3;
const BETWEEN: Duration = Duration::from_secs(2);

/// What sends them.
pub struct Posts {
    texts: SyncSender<String>,
    failed: Arc<AtomicU64>,
}

impl Posts {
    /// Begins the thread.
    ///
    /// # Errors
    /// When there is none.
    pub fn start(address: Address, tls: Option<Arc<ClientConfig>>) -> io::Result<Self> {
        let (texts, waiting) = sync_channel::<String>(MOST_WAITING);
        let failed = Arc::new(AtomicU64::new(0));
        let of_thread = failed.clone();
        std::thread::Builder::new()
            .name("posts".to_owned())
            .spawn(move || {
                for text in waiting {
                    let sent = (0..TRIES).any(|attempt| {
                        if attempt > 0 {
                            std::thread::sleep(BETWEEN);
                        }
                        address.post(&text, tls.as_ref()).is_ok()
                    });
                    if !sent {
                        of_thread.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })?;
        Ok(Self { texts, failed })
    }

    /// Has a text sent; where too many wait it counts as failed.
    pub fn send(&self, text: String) {
        if self.texts.try_send(text).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those that nobody took.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}
