//! Facts about the machine that every session asks for and that seldom change: read once for all who ask within a short time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A value and its age limit.
pub(crate) struct Recent<T> {
    lasts: Duration,
    known: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Recent<T> {
    /// Values are read again when they are older than `lasts`.
    pub(crate) const fn new(lasts: Duration) -> Recent<T> {
        Recent { lasts, known: Mutex::new(None) }
    }

    /// The value, which `read` gets if there is none that is young enough. Concurrent callers wait for one reader.
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
        let lasting = Recent::new(Duration::from_secs(3600));
        assert_eq!((lasting.get(|| 1), lasting.get(|| 2)), (1, 1));
        let never = Recent::new(Duration::ZERO);
        assert_eq!((never.get(|| 1), never.get(|| 2)), (1, 2));
    }
}
