//! Retries at the start of a fleet's process: a NATS cluster that elects its leaders, as after its start or a
//! server's death, answers no request for some seconds, which is no reason to give up.

use std::fmt::Display;
use std::time::Duration;

use crate::mover::UserMessageCallback;

/// Number of attempts; each may wait for several missing answers.
const TRIES: u32 = 5;

const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Begins, and repeats that after errors that may pass.
pub(crate) async fn retry_at_startup<T, E: Display, F: Future<Output = Result<T, E>>>(
    say: &UserMessageCallback,
    may_pass: impl Fn(&E) -> bool,
    begin: impl Fn() -> F,
) -> Result<T, E> {
    for _ in 1..TRIES {
        match begin().await {
            Err(error) if may_pass(&error) => say(format!("{error}; once more")),
            begun => return begun,
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    begin().await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;

    async fn begun(is_away: impl Fn(u32) -> bool) -> (Result<u32, &'static str>, u32) {
        let tried = Cell::new(0);
        let say: UserMessageCallback = Arc::new(|_| {});
        let begun = retry_at_startup(
            &say,
            |error| *error == "away",
            || async {
                tried.set(tried.get() + 1);
                if is_away(tried.get()) { Err("away") } else { Ok(tried.get()) }
            },
        );
        (begun.await, tried.get())
    }

    #[test]
    fn a_while_is_waited_and_no_longer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        assert_eq!(runtime.block_on(begun(|tried| tried < 3)), (Ok(3), 3));
        let say: UserMessageCallback = Arc::new(|_| {});
        let refused = retry_at_startup(&say, |error| *error == "away", || async { Err::<(), _>("refused") });
        assert_eq!(runtime.block_on(refused), Err("refused"));
        assert_eq!(runtime.block_on(begun(|_| true)), (Err("away"), TRIES));
    }
}
