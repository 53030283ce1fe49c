//! How ranks learn NCCL's unique id: rank 0 gives it to all others over TCP.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::comm::UniqueId;
use crate::error::Error;

/// How long ranks wait for each other.
const PATIENCE: Duration = Duration::from_secs(120);

/// Rank 0 makes the id with `make` and hands it to every other rank; those fetch it. `address` is rank 0's.
pub(crate) fn share_id(
    rank: u32,
    ranks: u32,
    address: (&str, u16),
    make: impl FnOnce() -> Result<UniqueId, Error>,
) -> Result<UniqueId, Error> {
    if ranks == 1 {
        return make();
    }
    let (host, port) = address;
    if rank == 0 {
        let listener = TcpListener::bind((host, port))
            .map_err(|error| Error::new(format!("rank 0 cannot listen on {host}:{port}: {error}")))?;
        let id = make()?;
        for _ in 1..ranks {
            let (mut peer, _) = listener.accept()?;
            peer.write_all(&id.0)?;
        }
        return Ok(id);
    }
    let started = Instant::now();
    loop {
        // Until rank 0 listens there is nobody to connect to.
        match TcpStream::connect((host, port)) {
            Ok(mut stream) => {
                let mut id = UniqueId([0; 128]);
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.read_exact(&mut id.0)?;
                return Ok(id);
            }
            Err(error) if started.elapsed() > PATIENCE => {
                return Err(Error::new(format!(
                    "rank {rank} cannot reach rank 0 on {host}:{port}: {error}"
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
