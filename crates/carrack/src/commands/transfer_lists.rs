//! The lists of `carrack transfers` and `carrack status`: the copies of this user, and submitted transfers.

use std::cmp::Reverse;
use std::io;

use carrack_model::escape;
use carrack_register::transfer_records::TransferRecord;

use crate::exit::ExitStatus;
use crate::lifetime::now_s;
use crate::options::transfer_server::{ServerConnectionArgs, connect_to_register};
use crate::register::{CopyStore, LocalCopyRecord};
use crate::user_error::UserError;
use crate::views::json::write_lines;
use crate::views::output::write_outcome;
use crate::views::transfer::{TransferRow, write_list};

/// Digits of a copy's ID.
const COPY_DIGITS: usize = 32;

/// The transfers to list.
pub struct TransferListing {
    pub copies: Vec<LocalCopyRecord>,
    /// The submitted transfers, or the error of the request for them.
    pub submitted: Result<Vec<TransferRecord>, UserError>,
    /// Most transfers that are shown.
    pub limit: usize,
}

/// Returns the wanted copies of this user, the latest first.
pub fn copies(is_wanted: impl Fn(&LocalCopyRecord) -> bool) -> Vec<LocalCopyRecord> {
    let mut copies = CopyStore::of_user().and_then(|copies| copies.list().ok()).unwrap_or_default();
    copies.retain(is_wanted);
    copies.reverse();
    copies
}

/// Returns the copy of this user with this ID, or whose ID begins with it; `None` if the ID is a submitted
/// transfer's. If the options name a server or a fleet, only a whole ID is looked up among the copies.
///
/// # Errors
/// If several transfers have it, or there is none.
pub fn find_own_copy(id: &str, target: &ServerConnectionArgs) -> Result<Option<LocalCopyRecord>, UserError> {
    let found = match CopyStore::of_user() {
        Some(copies) if !target.is_server_given() || id.len() == COPY_DIGITS => copies.find(id)?,
        _ => None,
    };
    let may_be_submitted = target.is_server_given() || target.machine_has_queue();
    match (found, may_be_submitted) {
        (None, true) => Ok(None),
        (None, false) => Err(UserError::new(format!("there is no transfer {}", escape(id.as_bytes())))
            .hint("`carrack transfers` lists those that are known; 4 digits of an ID are the least")),
        (Some(copy), true) if id.len() < COPY_DIGITS => {
            let target = connect_to_register(target)?;
            // A server that does not answer counts as having none.
            match target.wait(target.control.transfer(id)) {
                Ok(_) => Err(UserError::new(format!(
                    "{} is the beginning of a copy's ID and of a submitted transfer's",
                    escape(id.as_bytes())
                ))
                .hint("give more of its digits; `carrack transfers` lists them")),
                Err(_) => Ok(Some(copy)),
            }
        }
        (Some(copy), _) => Ok(Some(copy)),
    }
}

/// Returns the submitted transfers; none if the options name no server and this machine has no queue.
pub fn submitted_transfers(
    target: &ServerConnectionArgs,
    limit: usize,
    after: Option<&str>,
) -> Result<Vec<TransferRecord>, UserError> {
    if !target.is_server_given() && !target.machine_has_queue() {
        return Ok(Vec::new());
    }
    let target = connect_to_register(target)?;
    target.wait(target.control.transfers(limit, after))
}

impl TransferListing {
    /// Writes the transfers, the latest first.
    pub fn write(&self, as_json: bool) -> ExitStatus {
        let records = self.submitted.as_deref().unwrap_or_default();
        let mut out = io::stdout().lock();
        let result = if as_json {
            let copies = self.copies.iter().take(self.limit).map(LocalCopyRecord::to_row);
            write_lines(copies, &mut out).and_then(|()| write_lines(records, &mut out))
        } else {
            let mut rows: Vec<TransferRow> = self.copies.iter().map(TransferRow::from).collect();
            rows.extend(records.iter().map(TransferRow::from));
            rows.sort_by_key(|row| Reverse(row.since_s));
            rows.truncate(self.limit);
            match (rows.is_empty(), self.submitted.is_err()) {
                // Without an answer an empty list would be wrong.
                (true, true) => Ok(()),
                _ => write_list(&rows, now_s(), &mut out),
            }
        };
        let troubles = [self.submitted.as_ref().err().cloned(), write_outcome(result).err()];
        let troubles: Vec<UserError> = troubles.into_iter().flatten().collect();
        troubles.iter().for_each(UserError::print);
        if troubles.is_empty() { ExitStatus::Complete } else { ExitStatus::Nothing }
    }
}
