//! The choice of the meta-scheduler that an end asks for grants.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use carrack_engine::GrantExchangeHandle;
use carrack_options::MetaSchedulerChoice;
use carrack_service::DEFAULT_SHARING_SOCKET;
use carrack_service::sharing::GrantServerConnection;

/// Returns the exchange with the meta-scheduler; `None` where the machine's daemons share no storage targets.
/// A named socket is used even if nothing answers there: its daemon may start later, and until then the
/// transfer reports that there is no answer.
pub fn grant_exchange(sharer: &MetaSchedulerChoice) -> Option<GrantExchangeHandle> {
    let exchange = match sharer {
        MetaSchedulerChoice::Off => return None,
        MetaSchedulerChoice::Socket(path) => GrantServerConnection::new(path),
        MetaSchedulerChoice::Auto => find_local_grant_server()?,
    };
    Some(GrantExchangeHandle(Arc::new(exchange)))
}

/// Returns the machine's daemon before the user's own: it speaks for all users.
pub fn sockets_of_this_machine() -> impl Iterator<Item = PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(|place| Path::new(&place).join("carrack/sharing.sock"));
    std::iter::once(PathBuf::from(DEFAULT_SHARING_SOCKET)).chain(own).filter(|path| path.exists())
}

fn find_local_grant_server() -> Option<GrantServerConnection> {
    sockets_of_this_machine()
        .map(|path| GrantServerConnection::new(&path))
        .find(|exchange| exchange.probe().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_named_is_asked_whether_there_or_not() {
        assert!(grant_exchange(&MetaSchedulerChoice::Off).is_none());
        assert!(grant_exchange(&MetaSchedulerChoice::Socket("/nobody/there".into())).is_some());
    }
}
