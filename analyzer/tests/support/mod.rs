//! Recordings small enough to compute by hand.

#![allow(dead_code, reason = "each test file uses a part")]

use gputrace_trace::manifest::{Device, ProcessHeader};
use gputrace_trace::tables::{
    ApiCall, Collective, Communicator, Copy, ExternalCorrelation, Kernel, Marker, Synchronization,
};
use gputrace_trace::{DurationNs, Process, Recording, Table, TimeNs};

/// A recording that grows by a row a call. Times are nanoseconds.
pub struct Build {
    pub recording: Recording,
}

impl Build {
    pub fn new(ranks: u32) -> Self {
        let mut recording = Recording::default();
        recording.manifest.device = "cuda".to_owned();
        for rank in 0..ranks {
            let header = ProcessHeader {
                rank: Some(rank),
                host: "host".to_owned(),
                devices: vec![Device {
                    index: 0,
                    name: "GPU".to_owned(),
                    ..Device::default()
                }],
                ..ProcessHeader::new()
            };
            recording.processes.push(Process {
                folder: format!("rank{rank}"),
                header,
                ..Process::default()
            });
        }
        Self { recording }
    }

    pub fn kernel(
        &mut self,
        rank: usize,
        name: &str,
        stream: u32,
        start: i64,
        end: i64,
        correlation: u32,
    ) -> &mut Self {
        let name = self.recording.names.intern(name);
        self.recording.processes[rank].tables.kernels.push(Kernel {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(end - start),
            name,
            stream,
            correlation,
            ..Kernel::default()
        });
        self
    }

    pub fn copy(&mut self, stream: u32, start: i64, end: i64) -> &mut Self {
        self.recording.processes[0].tables.copies.push(Copy {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(end - start),
            stream,
            copy_kind: 1,
            bytes: 1,
            ..Copy::default()
        });
        self
    }

    pub fn call(&mut self, start: i64, end: i64, correlation: u32) -> &mut Self {
        let name = self.recording.names.intern("cuLaunchKernel");
        self.recording.processes[0].tables.api_calls.push(ApiCall {
            start_ns: TimeNs(start),
            duration_ns: DurationNs(end - start),
            name,
            correlation,
            ..ApiCall::default()
        });
        self
    }

    pub fn collective(&mut self, rank: usize, sequence: u64, bytes: u64, start: i64, end: i64) -> &mut Self {
        let correlation = 1000 + sequence as u32;
        self.kernel(rank, "a_kernel_of_any_name", 9, start, end, correlation);
        let (function, datatype) = (
            self.recording.names.intern("AllReduce"),
            self.recording.names.intern("ncclFloat32"),
        );
        let tables = &mut self.recording.processes[rank].tables;
        let plan = sequence + 1;
        tables.external_correlations.push(ExternalCorrelation {
            correlation,
            kind: 5,
            id: plan,
        });
        if tables.communicators.is_empty() {
            tables.communicators.push(Communicator {
                communicator: 0xabc,
                rank: rank as u32,
                ranks: 2,
                ..Communicator::default()
            });
        }
        tables.collectives.push(Collective {
            start_ns: TimeNs(start),
            communicator: 0xabc,
            sequence: Some(sequence),
            function,
            datatype,
            count: bytes / 4,
            bytes,
            plan: Some(plan),
            ..Collective::default()
        });
        self
    }

    pub fn step(&mut self, number: u64, start: i64, end: i64) -> &mut Self {
        let name = self.recording.names.intern(&format!("step {number}"));
        self.recording.processes[0].tables.markers.push(Marker {
            start_ns: TimeNs(start),
            duration_ns: Some(DurationNs(end - start)),
            name,
            ..Marker::default()
        });
        self
    }

    pub fn wait_event(&mut self, stream: u32, at: i64) -> &mut Self {
        let synchronizations = &mut self.recording.processes[0].tables.synchronizations;
        synchronizations.push(Synchronization {
            start_ns: TimeNs(at),
            kind: 2,
            context: Some(0),
            stream: Some(stream),
            ..Synchronization::default()
        });
        self
    }

    /// A process's place in a communicator.
    pub fn member(
        &mut self,
        process: usize,
        communicator: u64,
        name: &str,
        rank: u32,
        ranks: u32,
    ) -> &mut Self {
        let name = Some(self.recording.names.intern(name));
        let communicators = &mut self.recording.processes[process].tables.communicators;
        communicators.push(Communicator {
            communicator,
            name,
            rank,
            ranks,
            ..Communicator::default()
        });
        self
    }

    /// A kernel that carries operations of NCCL: the next ones of [`Self::carried`] with its plan.
    pub fn carrier(&mut self, process: usize, plan: u64, start: i64, end: i64) -> &mut Self {
        let correlation = 5000 + plan as u32;
        self.kernel(process, "a_kernel_of_any_name", 9, start, end, correlation);
        let tables = &mut self.recording.processes[process].tables;
        tables.external_correlations.push(ExternalCorrelation {
            correlation,
            kind: 5,
            id: plan,
        });
        self
    }

    /// An operation in the kernel of a plan; its rank in the communicator comes from [`Self::member`]. With a peer it has
    /// no number.
    pub fn carried(
        &mut self,
        process: usize,
        plan: u64,
        communicator: u64,
        function: &str,
        peer_or_sequence: Result<i32, u64>,
        bytes: u64,
    ) -> &mut Self {
        let (function, datatype) = (
            self.recording.names.intern(function),
            self.recording.names.intern("ncclInt8"),
        );
        let tables = &mut self.recording.processes[process].tables;
        let members = &tables.communicators;
        let place = members.communicator.iter().position(|one| *one == communicator);
        tables.collectives.push(Collective {
            start_ns: TimeNs(plan as i64),
            communicator,
            rank: members.rank[place.expect("a member of the communicator")],
            sequence: peer_or_sequence.err(),
            function,
            datatype,
            count: bytes,
            bytes,
            peer: peer_or_sequence.ok(),
            plan: Some(plan),
            ..Collective::default()
        });
        self
    }
}
