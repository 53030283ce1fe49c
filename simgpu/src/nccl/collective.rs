//! One collective between connected ranks: arrivals and data are exchanged, and all ranks agree on the end.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::model::{self, Function};
use super::reduce;
use crate::config::config;

/// One operation as it was enqueued on this rank. Addresses are of device memory that was checked then.
#[derive(Clone, Copy)]
pub(super) struct Operation {
    pub(super) function: Function,
    pub(super) send: u64,
    pub(super) receive: u64,
    /// The caller's count.
    pub(super) count: usize,
    pub(super) datatype: i32,
    pub(super) element_bytes: usize,
    pub(super) reduction: i32,
    pub(super) root: u32,
    /// The number among operations of this function on this communicator.
    pub(super) sequence: u64,
}

impl Operation {
    /// Bytes as NCCL's model counts them.
    pub(super) fn model_bytes(&self, ranks: u32) -> u64 {
        let bytes = (self.count * self.element_bytes) as u64;
        match self.function {
            Function::AllGather | Function::ReduceScatter => bytes * u64::from(ranks),
            _ => bytes,
        }
    }

    /// Bytes of the send and the receive buffer.
    pub(super) fn buffer_bytes(&self, ranks: u32) -> (usize, usize) {
        let bytes = self.count * self.element_bytes;
        let all = bytes * ranks as usize;
        match self.function {
            Function::AllGather => (bytes, all),
            Function::ReduceScatter => (all, bytes),
            _ => (bytes, bytes),
        }
    }
}

/// The connections of one rank.
pub(super) struct Mesh {
    pub(super) rank: u32,
    pub(super) ranks: u32,
    pub(super) peers: Vec<Option<TcpStream>>,
    /// How many times slower the slowest link among the ranks is.
    pub(super) link_factor: f64,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Device memory as a slice.
fn memory(address: u64, bytes: usize) -> &'static mut [u8] {
    // SAFETY: the range was checked to lie in device memory when the operation was enqueued, CUDA forbids freeing it
    // before the operation is done, and the stream's order keeps other operations away.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
}

impl Mesh {
    /// Sends `out[p]` to each peer p and receives into `into[p]`, all at once: no order in which ranks could block each other.
    fn exchange(&self, out: &[&[u8]], into: &mut [Vec<u8>]) -> io::Result<()> {
        std::thread::scope(|scope| {
            let senders: Vec<_> = self
                .peers
                .iter()
                .zip(out)
                .filter_map(|(peer, bytes)| Some((peer.as_ref()?, *bytes)))
                .filter(|(_, bytes)| !bytes.is_empty())
                .map(|(mut peer, bytes)| {
                    // Small messages fit into the socket's buffer and need no thread.
                    if bytes.len() <= 16 << 10 {
                        return Err(peer.write_all(bytes));
                    }
                    Ok(scope.spawn(move || peer.write_all(bytes)))
                })
                .collect();
            let mut result = Ok(());
            for (peer, bytes) in self.peers.iter().zip(into.iter_mut()) {
                if let Some(mut peer) = peer.as_ref()
                    && let Err(error) = peer.read_exact(bytes)
                {
                    // The senders must not wait for a peer that is gone.
                    self.shut_down();
                    result = Err(error);
                    break;
                }
            }
            for sender in senders {
                let sent = match sender {
                    Ok(thread) => thread.join().unwrap_or_else(|_| Err(broken("a sender panicked"))),
                    Err(sent) => sent,
                };
                result = result.and(sent);
            }
            result
        })
    }

    /// Breaks all connections: peers that wait for this rank find out.
    pub(super) fn shut_down(&self) {
        for peer in self.peers.iter().flatten() {
            // Already broken is as good.
            drop(peer.shutdown(std::net::Shutdown::Both));
        }
    }

    /// Tells all ranks when this one arrived and what for; gives the last arrival and the greatest slowdown.
    fn meet(&self, operation: &Operation, start_ns: i64) -> io::Result<(i64, f64)> {
        let mut hello = Vec::with_capacity(48);
        hello.extend_from_slice(&[
            operation.function as u8,
            operation.datatype as u8,
            operation.reduction as u8,
        ]);
        hello.extend_from_slice(&operation.root.to_le_bytes());
        hello.extend_from_slice(&(operation.count as u64).to_le_bytes());
        hello.extend_from_slice(&operation.sequence.to_le_bytes());
        let what = hello.len();
        hello.extend_from_slice(&start_ns.to_le_bytes());
        hello.extend_from_slice(&config().slowdown.to_le_bytes());
        let out: Vec<&[u8]> = self.peers.iter().map(|_| hello.as_slice()).collect();
        let mut into: Vec<Vec<u8>> = self.peers.iter().map(|_| vec![0; hello.len()]).collect();
        self.exchange(&out, &mut into)?;
        let (mut last_ns, mut slowdown) = (start_ns, config().slowdown);
        for (peer, theirs) in self.peers.iter().zip(&into) {
            if peer.is_none() {
                continue;
            }
            if theirs[..what] != hello[..what] {
                return Err(broken(
                    "ranks called different collectives, or the same with different arguments",
                ));
            }
            let word = |at: usize| theirs[at..at + 8].try_into().unwrap_or([0; 8]);
            last_ns = last_ns.max(i64::from_le_bytes(word(what)));
            slowdown = slowdown.max(f64::from_le_bytes(word(what + 8)));
        }
        Ok((last_ns, slowdown))
    }

    /// Runs the operation; gives its end, the same on all ranks.
    pub(super) fn run(&self, operation: &Operation, start_ns: i64) -> io::Result<i64> {
        let (last_ns, slowdown) = self.meet(operation, start_ns)?;
        match operation.function {
            Function::AllReduce => self.all_reduce(operation)?,
            Function::AllGather => self.all_gather(operation)?,
            Function::ReduceScatter => self.reduce_scatter(operation)?,
            Function::Broadcast => self.broadcast(operation)?,
            Function::Reduce => self.reduce(operation)?,
        }
        let choice = model::choose(
            operation.function,
            operation.model_bytes(self.ranks),
            self.ranks,
            self.link_factor,
        );
        Ok(last_ns + (choice.transfer_ns as f64 * slowdown).round() as i64)
    }

    /// The share of `count` elements that rank `of` reduces, as a byte range.
    fn share(&self, operation: &Operation, of: usize) -> std::ops::Range<usize> {
        let ranks = self.ranks as usize;
        let edge = |rank: usize| operation.count * rank / ranks * operation.element_bytes;
        edge(of)..edge(of + 1)
    }

    fn everyone(&self) -> std::ops::Range<usize> {
        0..self.ranks as usize
    }

    /// Every rank reduces its share of everybody's data, then all shares go to everybody.
    fn all_reduce(&self, operation: &Operation) -> io::Result<()> {
        let bytes = operation.count * operation.element_bytes;
        let (send, receive) = (memory(operation.send, bytes), memory(operation.receive, bytes));
        let mine = self.share(operation, self.rank as usize);
        let mut reduced = vec![0u8; mine.len()];
        {
            let out: Vec<&[u8]> = self
                .everyone()
                .map(|peer| &send[self.share(operation, peer)])
                .collect();
            let mut into: Vec<Vec<u8>> = self.everyone().map(|_| vec![0; mine.len()]).collect();
            self.exchange(&out, &mut into)?;
            into[self.rank as usize].copy_from_slice(&send[mine.clone()]);
            let parts: Vec<&[u8]> = into.iter().map(Vec::as_slice).collect();
            reduce::reduce_into(&mut reduced, &parts, operation.datatype, operation.reduction);
        }
        let out: Vec<&[u8]> = self.everyone().map(|_| reduced.as_slice()).collect();
        let mut into: Vec<Vec<u8>> = self
            .everyone()
            .map(|peer| vec![0; self.share(operation, peer).len()])
            .collect();
        self.exchange(&out, &mut into)?;
        into[self.rank as usize].copy_from_slice(&reduced);
        for (peer, part) in into.iter().enumerate() {
            receive[self.share(operation, peer)].copy_from_slice(part);
        }
        Ok(())
    }

    fn all_gather(&self, operation: &Operation) -> io::Result<()> {
        let bytes = operation.count * operation.element_bytes;
        let (send, receive) = (
            memory(operation.send, bytes),
            memory(operation.receive, bytes * self.ranks as usize),
        );
        // In place the send buffer is a part of the receive buffer: copied out first.
        let own = send.to_vec();
        let out: Vec<&[u8]> = self.everyone().map(|_| own.as_slice()).collect();
        let mut into: Vec<Vec<u8>> = self.everyone().map(|_| vec![0; bytes]).collect();
        self.exchange(&out, &mut into)?;
        into[self.rank as usize].copy_from_slice(&own);
        for (place, part) in receive.chunks_exact_mut(bytes.max(1)).zip(&into) {
            place.copy_from_slice(part);
        }
        Ok(())
    }

    fn reduce_scatter(&self, operation: &Operation) -> io::Result<()> {
        let bytes = operation.count * operation.element_bytes;
        let all = memory(operation.send, bytes * self.ranks as usize).to_vec();
        let part = |rank: usize| &all[rank * bytes..(rank + 1) * bytes];
        let out: Vec<&[u8]> = self.everyone().map(part).collect();
        let mut into: Vec<Vec<u8>> = self.everyone().map(|_| vec![0; bytes]).collect();
        self.exchange(&out, &mut into)?;
        into[self.rank as usize].copy_from_slice(part(self.rank as usize));
        let parts: Vec<&[u8]> = into.iter().map(Vec::as_slice).collect();
        reduce::reduce_into(
            memory(operation.receive, bytes),
            &parts,
            operation.datatype,
            operation.reduction,
        );
        Ok(())
    }

    fn broadcast(&self, operation: &Operation) -> io::Result<()> {
        let bytes = operation.count * operation.element_bytes;
        let root = operation.root as usize;
        let is_root = operation.root == self.rank;
        let data = if is_root {
            memory(operation.send, bytes).to_vec()
        } else {
            Vec::new()
        };
        let out: Vec<&[u8]> = self.everyone().map(|_| data.as_slice()).collect();
        let mut into: Vec<Vec<u8>> = self
            .everyone()
            .map(|peer| {
                if peer == root && !is_root {
                    vec![0; bytes]
                } else {
                    Vec::new()
                }
            })
            .collect();
        self.exchange(&out, &mut into)?;
        memory(operation.receive, bytes).copy_from_slice(if is_root { &data } else { &into[root] });
        Ok(())
    }

    fn reduce(&self, operation: &Operation) -> io::Result<()> {
        let bytes = operation.count * operation.element_bytes;
        let root = operation.root as usize;
        let is_root = operation.root == self.rank;
        let data = memory(operation.send, bytes).to_vec();
        let out: Vec<&[u8]> = self
            .everyone()
            .map(|peer| if peer == root { data.as_slice() } else { &[] })
            .collect();
        let mut into: Vec<Vec<u8>> = self
            .everyone()
            .map(|_| vec![0; if is_root { bytes } else { 0 }])
            .collect();
        self.exchange(&out, &mut into)?;
        if is_root {
            into[root].copy_from_slice(&data);
            let parts: Vec<&[u8]> = into.iter().map(Vec::as_slice).collect();
            reduce::reduce_into(
                memory(operation.receive, bytes),
                &parts,
                operation.datatype,
                operation.reduction,
            );
        }
        Ok(())
    }
}
