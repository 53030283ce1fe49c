//! What checkpoints need of the connection between ranks.

use crate::error::Error;
use crate::store::Store;

/// All ranks call these alike.
pub(super) trait Exchange {
    /// All ranks' bytes, by rank, on rank 0; `None` on the others.
    fn gather(&self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Error>;

    /// Rank 0's bytes for all; it alone gives some.
    fn broadcast(&self, from_rank_0: Option<&[u8]>) -> Result<Vec<u8>, Error>;
}

impl Exchange for Store {
    fn gather(&self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Error> {
        Self::gather(self, bytes)
    }

    fn broadcast(&self, from_rank_0: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        Self::broadcast(self, from_rank_0)
    }
}

/// Ranks that are threads.
#[cfg(test)]
pub(super) mod threads {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::{Error, Exchange};

    /// To another rank and from it.
    type Ends = (Sender<Vec<u8>>, Receiver<Vec<u8>>);

    /// One rank's ends.
    enum Local {
        First(Vec<Ends>),
        Other(Ends),
    }

    fn gone<T>(_: T) -> Error {
        Error::new("a rank is gone")
    }

    impl Exchange for Local {
        fn gather(&self, bytes: &[u8]) -> Result<Option<Vec<Vec<u8>>>, Error> {
            match self {
                Self::First(others) => {
                    let mut all = vec![bytes.to_vec()];
                    for (_, from) in others {
                        all.push(from.recv().map_err(gone)?);
                    }
                    Ok(Some(all))
                }
                Self::Other((to, _)) => to.send(bytes.to_vec()).map_err(gone).map(|()| None),
            }
        }

        fn broadcast(&self, from_rank_0: Option<&[u8]>) -> Result<Vec<u8>, Error> {
            match self {
                Self::First(others) => {
                    let bytes = from_rank_0.expect("rank 0 gives bytes");
                    for (to, _) in others {
                        to.send(bytes.to_vec()).map_err(gone)?;
                    }
                    Ok(bytes.to_vec())
                }
                Self::Other((_, from)) => from.recv().map_err(gone),
            }
        }
    }

    /// Runs `body` on so many ranks and gives what each came to. A rank that ends takes its ends with it.
    pub(in crate::checkpoint) fn on_ranks<T: Send>(
        ranks: usize,
        body: impl Fn(&dyn Exchange, usize) -> T + Sync,
    ) -> Vec<T> {
        let mut others = Vec::new();
        let mut ends = Vec::new();
        for _ in 1..ranks {
            let ((to_first, from_other), (to_other, from_first)) = (channel(), channel());
            others.push((to_other, from_other));
            ends.push(Local::Other((to_first, from_first)));
        }
        ends.insert(0, Local::First(others));
        let body = &body;
        std::thread::scope(|scope| {
            let threads: Vec<_> = ends
                .into_iter()
                .enumerate()
                .map(|(rank, end)| scope.spawn(move || body(&end, rank)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a rank"))
                .collect()
        })
    }
}
