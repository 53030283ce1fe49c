//! Browsers that were let in: each has a secret of its own, so that what a browser keeps is not the token.
//!
//! They end with the server, which remembers them nowhere else.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::auth::{random_token, same};
use super::entry::lock;

/// Sessions at one time. For one more the one goes that never asked anything, or has not for the longest time.
const MOST: usize = 256;
/// A session in which nobody asked anything for so long has ended.
const IDLE: Duration = Duration::from_secs(7 * 24 * 3600);
/// A request has one of our cookies; of more than a few nobody looks at the rest.
const MOST_GIVEN: usize = 4;

struct Session {
    number: u64,
    secret: String,
    used: Instant,
    was_used: bool,
}

impl Session {
    fn is_alive(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.used) < IDLE
    }
}

/// All sessions, and the number of the latest.
#[derive(Default)]
pub(super) struct Sessions(Mutex<(u64, Vec<Session>)>);

impl Sessions {
    /// Begins one and gives its secret; nothing where the system has no random numbers.
    pub(super) fn begin(&self, now: Instant) -> Option<String> {
        let secret = random_token().ok()?;
        let (last, sessions) = &mut *lock(&self.0);
        sessions.retain(|session| session.is_alive(now));
        if sessions.len() >= MOST {
            let first = sessions.iter().enumerate();
            let first = first.min_by_key(|(_, session)| (session.was_used, session.used));
            if let Some((place, _)) = first {
                sessions.remove(place);
            }
        }
        *last += 1;
        sessions.push(Session {
            number: *last,
            secret: secret.clone(),
            used: now,
            was_used: false,
        });
        Some(secret)
    }

    /// The number of the session that one of the secrets is of.
    pub(super) fn find<'a>(&self, given: impl Iterator<Item = &'a str>, now: Instant) -> Option<u64> {
        let (_, sessions) = &mut *lock(&self.0);
        let mut found = None;
        for given in given.take(MOST_GIVEN) {
            // All are compared, whichever it is.
            for session in sessions.iter_mut() {
                if same(given, &session.secret) && session.is_alive(now) {
                    session.used = now;
                    session.was_used = true;
                    found = Some(session.number);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_secret_of_its_own() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let (first, second) = (sessions.begin(now).unwrap(), sessions.begin(now).unwrap());
        assert_ne!(first, second);
        let find = |secret: &str, now| sessions.find(std::iter::once(secret), now);
        assert_eq!((find(&first, now), find(&second, now)), (Some(1), Some(2)));
        for wrong in ["", &first[1..], "x"] {
            assert_eq!(find(wrong, now), None);
        }
        let others = Sessions::default();
        assert_eq!(others.find(std::iter::once(first.as_str()), now), None);
        assert_eq!(find(&first, now + IDLE - Duration::from_secs(1)), Some(1));
        assert_eq!(find(&first, now + IDLE), Some(1));
        assert_eq!(find(&second, now + IDLE), None, "left alone");
    }

    #[test]
    fn there_are_only_so_many() {
        let sessions = Sessions::default();
        let now = Instant::now();
        let used = sessions.begin(now).unwrap();
        let find = || sessions.find(std::iter::once(used.as_str()), now);
        assert!(find().is_some());
        for _ in 0..3 * MOST {
            sessions.begin(now + Duration::from_secs(1)).unwrap();
        }
        assert_eq!(lock(&sessions.0).1.len(), MOST);
        assert!(find().is_some(), "those that are used stay");
    }
}
