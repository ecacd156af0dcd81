//! Sharing of storage targets in the daemon: its meta-server, the rules for its classes, and the client that
//! transfers use; and the file by which a fleet's manager shares the targets of a site.

mod class_rules;
mod exchange;
mod site_file;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use carrack_plan::grants::{GrantClientReport, GrantReply, SharedTargetStatus};
use carrack_sharing::{BatchRefusal, MetaSchedulerServer, SharingSettings};
use tokio::task::spawn_blocking;

use class_rules::MembershipCache;
pub use class_rules::{ClassUserRules, SharingClassUsers};
pub use exchange::GrantServerConnection;
pub use site_file::site_sharing;

use crate::queue::name_of_user;

/// A meta-server whose clients are users of this machine.
#[derive(Debug)]
pub struct MachineMetaScheduler {
    /// The meta-server.
    pub server: Arc<MetaSchedulerServer>,
    membership: Mutex<ClassMembership>,
}

/// The rules for classes, and recent results of lookups.
#[derive(Debug)]
struct ClassMembership {
    rules: ClassUserRules,
    known: MembershipCache,
}

impl MachineMetaScheduler {
    /// Starts a meta-server.
    pub fn start(settings: SharingSettings, rules: ClassUserRules) -> MachineMetaScheduler {
        let membership = Mutex::new(ClassMembership { rules, known: MembershipCache::default() });
        MachineMetaScheduler { server: Arc::new(MetaSchedulerServer::start(settings)), membership }
    }

    /// Changes the settings; running transfers keep their grants.
    pub fn reconfigure(&self, settings: SharingSettings, rules: ClassUserRules) {
        *self.membership() = ClassMembership { rules, known: MembershipCache::default() };
        self.server.change(settings);
    }

    /// Answers a batch of a process of this user. If the user may not use the class of the batch, the batch
    /// counts as one without a class.
    ///
    /// # Errors
    /// [`BatchRefusal`] for a batch out of bounds.
    pub async fn answer(&self, uid: u32, batch: GrantClientReport) -> Result<GrantReply, BatchRefusal> {
        let may_use = self.may_use(uid, &batch.class).await;
        let class = if may_use { batch.class } else { String::new() };
        self.server.answer(&uid.to_string(), GrantClientReport { class, ..batch })
    }

    /// Returns every known target of this name or of this file system, as [`MetaSchedulerServer::targets`]
    /// does. Clients are `USER/NAME`.
    pub fn targets(&self, name: &str) -> Vec<SharedTargetStatus> {
        let mut targets = self.server.targets(name);
        let mut names = std::collections::BTreeMap::new();
        for target in &mut targets {
            let holders = target.holders.iter_mut().map(|holder| &mut holder.client);
            let waiting = target.waiting.iter_mut().map(|waiting| &mut waiting.client);
            for client in holders.chain(waiting) {
                if let Some((caller, own)) = client.split_once('/')
                    && let Ok(uid) = caller.parse()
                {
                    let user = names.entry(uid).or_insert_with(|| name_of_user(uid));
                    *client = format!("{user}/{own}");
                }
            }
        }
        targets
    }

    /// Returns true if a user may use a class. Looking groups up may take as long as a directory server does,
    /// so it runs on another thread, and seldom.
    async fn may_use(&self, uid: u32, class: &str) -> bool {
        let members = {
            let ClassMembership { rules, known } = &*self.membership();
            let Some(members) = rules.members(class) else { return true };
            if let Some(may_use) = known.get(uid, class) {
                return may_use;
            }
            members.clone()
        };
        let asked = members.clone();
        let may_use = spawn_blocking(move || asked.includes(uid)).await.unwrap_or(false);
        let ClassMembership { rules, known } = &mut *self.membership();
        // The rules may have changed meanwhile.
        if rules.members(class) == Some(&members) {
            known.put(uid, class, may_use);
        }
        may_use
    }

    /// A thread that panicked left a consistent state.
    fn membership(&self) -> MutexGuard<'_, ClassMembership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use carrack_plan::grants::{GrantClientClass, GrantRequest};

    use super::*;

    fn user(name: &str) -> SharingClassUsers {
        SharingClassUsers { users: Some(vec![name.to_owned()]), groups: None }
    }

    #[tokio::test]
    async fn a_class_is_for_those_whom_it_names() {
        let uid = rustix::process::geteuid().as_raw();
        let classes = ["open", "mine", "theirs"].map(|name| (name.to_owned(), GrantClientClass::default()));
        let classes = BTreeMap::from(classes);
        let rules = ClassUserRules::new(BTreeMap::from([
            ("open".to_owned(), SharingClassUsers::default()),
            ("mine".to_owned(), user(&name_of_user(uid))),
            ("theirs".to_owned(), user("nobody-of-this-name")),
        ]));
        let shared = MachineMetaScheduler::start(SharingSettings { classes, ..Default::default() }, rules);
        for (class, expected) in [("", ""), ("open", "open"), ("mine", "mine"), ("theirs", ""), ("x", "")] {
            let asks = vec![GrantRequest { target: "fs/x".to_owned(), ..GrantRequest::default() }];
            let client = format!("of-{class}");
            let batch = GrantClientReport {
                client,
                class: class.to_owned(),
                number: 1,
                asks,
                ..GrantClientReport::default()
            };
            assert_eq!(shared.answer(uid, batch).await.unwrap().class, expected, "{class}");
        }
        let shown = shared.targets("fs");
        let client = &shown[0].waiting[0].client;
        assert!(client.starts_with(&format!("{}/of-", name_of_user(uid))), "{client}");
        assert!(shared.targets("other").is_empty());
    }
}
