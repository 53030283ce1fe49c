//! What listens: who may ask, which recordings there are, and what is answered.
