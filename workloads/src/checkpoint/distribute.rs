//! Giving a checkpoint to all ranks: rank 0 reads it, since other hosts may not have the file.

use std::path::Path;

use crate::error::Error;
use crate::store::Store;

use super::State;
use super::exchange::Exchange;
use super::format::{CHUNK, Header, from_bytes};
use super::load::Reader;

/// Reads the checkpoint at `path` on rank 0 and gives it to all ranks. It must be of this shape, with `total` parameters.
///
/// Beside the state itself this needs some MB.
pub(crate) fn distribute(store: &Store, path: &Path, shape: &str, total: usize) -> Result<State, Error> {
    distribute_over(store, path, shape, total)
}

fn distribute_over(store: &dyn Exchange, path: &Path, shape: &str, total: usize) -> Result<State, Error> {
    let is_first = store.gather(&[])?.is_some();
    let mut reader = if is_first {
        let reader = Reader::open(path, shape)?;
        reader.check_parameters(total)?;
        Some(reader)
    } else {
        None
    };
    let header = match &reader {
        Some(reader) => {
            Some(serde_json::to_vec(&reader.header).map_err(|error| Error::new(error.to_string()))?)
        }
        None => None,
    };
    let header: Header = serde_json::from_slice(&store.broadcast(header.as_deref())?)
        .map_err(|error| Error::new(format!("rank 0 sent no checkpoint: {error}")))?;
    let mut state = header.empty_state();
    for vector in std::iter::once(&mut state.parameters).chain(&mut state.moments) {
        vector.reserve_exact(total);
        while vector.len() < total {
            let count = CHUNK.min(total - vector.len());
            let read = reader.as_mut().map(|reader| reader.read(count)).transpose()?;
            let bytes = store.broadcast(read.as_deref())?;
            if bytes.len() != count * size_of::<f32>() {
                return Err(Error::new(
                    "rank 0 sent another part of the checkpoint than was due",
                ));
            }
            vector.extend(from_bytes(&bytes));
        }
    }
    // Nobody goes on with a checkpoint that turns out to be damaged.
    let verdict = reader.map(Reader::finish).transpose()?.map(|()| &[][..]);
    store.broadcast(verdict)?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::exchange::threads::on_ranks;
    use crate::checkpoint::load::tests::state;
    use crate::checkpoint::write;

    fn distributed(path: &Path, shape: &str, total: usize) -> Vec<Result<State, String>> {
        on_ranks(3, |exchange, rank| {
            // Only rank 0's host has the file.
            let path = if rank == 0 { path } else { Path::new("/nowhere") };
            distribute_over(exchange, path, shape, total).map_err(|error| error.to_string())
        })
    }

    #[test]
    fn all_ranks_get_what_rank_0_reads() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a");
        let total = CHUNK + 3;
        write(&path, &state(4, total)).expect("writes");
        for got in distributed(&path, "shape", total) {
            assert!(got == Ok(state(4, total)));
        }
    }

    #[test]
    fn no_rank_goes_on_with_what_rank_0_refuses() {
        let folder = tempfile::tempdir().expect("folder");
        let path = folder.path().join("a");
        write(&path, &state(4, 10)).expect("writes");
        let mut bytes = std::fs::read(&path).expect("reads");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        let damaged = folder.path().join("b");
        std::fs::write(&damaged, bytes).expect("writes");
        let missing = folder.path().join("c");
        for (path, shape, total, why) in [
            (&path, "another shape", 10, "this run is of another shape"),
            (&path, "shape", 11, "this run has 11"),
            (&damaged, "shape", 10, "checksum"),
            (&missing, "shape", 10, "does not exist"),
        ] {
            let outcomes = distributed(path, shape, total);
            assert!(outcomes.iter().all(Result::is_err), "{why}");
            let text = outcomes[0].as_ref().expect_err("refused");
            assert!(text.contains(why), "{text}");
        }
    }
}
