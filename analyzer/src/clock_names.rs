//! What a clock is called.

use gputrace_trace::Recording;
use gputrace_trace::alignment::Alignment;

/// Its host; where none is named, the file that it stamped, by its lowest rank.
pub(crate) fn clock_name(recording: &Recording, alignment: &Alignment, number: usize) -> String {
    if let Some(clock) = alignment
        .clocks
        .get(number)
        .filter(|clock| !clock.host.is_empty())
    {
        return clock.host.clone();
    }
    let headers = recording.processes.iter().map(|process| &process.header);
    let own = headers.filter(|header| header.clock.is_some_and(|clock| clock as usize == number));
    let lowest = own.filter_map(|header| header.rank).min();
    lowest.map_or_else(|| "a file".to_owned(), |rank| format!("the file of rank {rank}"))
}
