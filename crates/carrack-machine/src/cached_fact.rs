//! Cached facts about the machine that every session reads and that seldom change.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A cached value with a maximum age.
pub(crate) struct CachedFact<T> {
    lasts: Duration,
    known: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> CachedFact<T> {
    /// A cache whose value is read again when it is older than `lasts`.
    pub(crate) const fn new(lasts: Duration) -> CachedFact<T> {
        CachedFact { lasts, known: Mutex::new(None) }
    }

    /// Returns the value; calls `read` if it is missing or too old. Concurrent callers wait for one reader.
    pub(crate) fn get(&self, read: impl FnOnce() -> T) -> T {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((at, value)) if at.elapsed() < self.lasts => value.clone(),
            _ => {
                let value = read();
                *known = Some((Instant::now(), value.clone()));
                value
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_read_again_when_it_is_too_old() {
        let lasting = CachedFact::new(Duration::from_secs(3600));
        assert_eq!((lasting.get(|| 1), lasting.get(|| 2)), (1, 1));
        let never = CachedFact::new(Duration::ZERO);
        assert_eq!((never.get(|| 1), never.get(|| 2)), (1, 2));
    }
}
