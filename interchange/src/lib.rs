//! Other people's trace formats, in and out
