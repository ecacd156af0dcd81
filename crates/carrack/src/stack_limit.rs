//! The stack of the process's first thread: with too small a `ulimit -s` the process would be killed without
//! a message.

use std::sync::{Mutex, PoisonError};
use std::thread;

use carrack_machine::{Resource, resource_limit};

/// Stack that is enough for every command, by far: the usual limit.
const ENOUGH_BYTES: usize = 8 << 20;

/// Returns true if the first thread's stack is limited to less than a command may need.
pub fn is_stack_short() -> bool {
    resource_limit(Resource::RLIMIT_STACK).is_some_and(|bytes| bytes < ENOUGH_BYTES as u64)
}

/// Does `work` on a thread with enough stack, or on this one if no thread can be started.
pub fn run_with_enough_stack<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    let work = Mutex::new(Some(work));
    thread::scope(|scope| {
        let started =
            thread::Builder::new().stack_size(ENOUGH_BYTES).spawn_scoped(scope, || take_and_run(&work));
        match started.map(|thread| thread.join()) {
            Ok(Ok(done)) => done,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => take_and_run(&work),
        }
    })
    .expect("the work is taken once")
}

fn take_and_run<R>(work: &Mutex<Option<impl FnOnce() -> R>>) -> Option<R> {
    let work = work.lock().unwrap_or_else(PoisonError::into_inner).take();
    work.map(|work| work())
}
