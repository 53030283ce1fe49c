//! What a picture of a recording needs, at any zoom.
