//! What a gputrace recording is: the event model, the clock, the files
