//! What clocks are estimated from.

/// One rank's operation in a [`Meeting`], by the clock of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which clock stamped it.
    pub clock: u32,
    /// When the rank arrived.
    pub start_ns: i64,
    /// When its operation was over.
    pub end_ns: i64,
}

/// A collective that no rank can leave before the last has arrived, so that all leave it at about the same time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// What ends alike: by name and size. How far ends scatter is measured for each class.
    pub class: u32,
    /// What is done: by name. A host may leave one kind a little later than another, always.
    pub kind: u32,
    /// What takes equally long from the last arrival on: by name, exact size and communicator.
    pub work: u32,
    /// Who took part.
    pub members: Vec<Member>,
}
