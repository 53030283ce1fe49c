//! Overlap, idle time and collectives, from a recording
