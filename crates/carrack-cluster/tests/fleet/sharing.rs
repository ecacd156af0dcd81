//! A site's storage targets are shared out by the manager that has the site's lease.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use carrack_cluster::bus::NatsBus;
use carrack_cluster::sharing::{SiteTargetsRequestError, site_targets};
use carrack_plan::grants::{GrantClientClass, SharedTargetStatus};
use carrack_register::transfer_records::TransferOptions;
use carrack_sharing::{SharingSettings, SiteSharing};
use futures_util::StreamExt;
use serde_json::Value;

use super::support::PATIENCE;
use super::whole::{Fleet, MIB, assert_same, noise};

/// What movers ask, by the subject that they ask at.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<(String, Value)>>>);

impl Asked {
    fn follow(fleet: &Fleet) -> Asked {
        let asked = Asked::default();
        let heard = asked.clone();
        let mut requests = fleet.runtime.block_on(async {
            let client = async_nats::connect(&fleet.nats.urls[0]).await.unwrap();
            client.subscribe("carrack.grants.*").await.unwrap()
        });
        fleet.runtime.spawn(async move {
            while let Some(message) = requests.next().await {
                let batch = serde_json::from_slice(&message.payload).unwrap();
                heard.0.lock().unwrap().push((message.subject.to_string(), batch));
            }
        });
        asked
    }

    fn all(&self) -> Vec<(String, Value)> {
        self.0.lock().unwrap().clone()
    }

    /// The epochs that clients have been told, by subject.
    fn epochs(&self) -> BTreeMap<String, BTreeSet<u64>> {
        let mut epochs: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for (subject, batch) in self.all() {
            epochs.entry(subject).or_default().extend(batch["epoch"].as_u64().filter(|epoch| *epoch > 0));
        }
        epochs
    }

    fn wait_for(&self, what: &str, is_there: impl Fn(&BTreeMap<String, BTreeSet<u64>>) -> bool) {
        let began = Instant::now();
        while !is_there(&self.epochs()) {
            assert!(began.elapsed() < PATIENCE, "{what}: {:?}", self.epochs());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn both_ends_of_a_pair_ask_and_another_manager_takes_over() {
    let Some(fleet) = Fleet::new() else { return };
    fs::create_dir(fleet.at("a/set")).unwrap();
    for i in 0..6 {
        fs::write(fleet.at(&format!("a/set/{i}")), noise(12 * MIB, i)).unwrap();
    }
    let sites = ["a", "b"].map(SiteSharing::by_default);
    let shares = || fleet.manager_with(|options| options.shares = sites.to_vec());
    let asked = Asked::follow(&fleet);
    let first = shares();
    // It has both leases before there is another one.
    let bus = fleet.runtime.block_on(NatsBus::connect(&fleet.nats.options())).unwrap();
    let is_shared = |site| fleet.runtime.block_on(site_targets(&bus, site, "")).is_ok();
    let began = Instant::now();
    while !["a", "b"].into_iter().all(is_shared) {
        assert!(began.elapsed() < PATIENCE, "nobody shares");
    }
    let second = shares();
    let _movers = (fleet.mover("a", 4), fleet.mover("b", 4));
    let slow =
        TransferOptions::default().with("bwlimit", 4_000_000).with("chunk-size", 8 << 20).with("pairs", 1);
    let id = fleet.submit("a/set", "b/set", slow).id;
    asked.wait_for("both ends have answers", |epochs| {
        epochs.len() == 2 && epochs.values().all(|epochs| !epochs.is_empty())
    });
    first.drain();
    asked.wait_for("another manager answers", |epochs| epochs.values().all(|epochs| epochs.len() >= 2));
    fleet.done(&id);
    assert_same(&fleet.at("a/set"), &fleet.at("b/set"));
    let all = asked.all();
    let targets = all.iter().filter_map(|(_, batch)| batch["asks"][0]["target"].as_str());
    assert!(targets.clone().count() > 0 && targets.clone().all(|name| name.contains('/')));
    let leaves = all.iter().filter(|(_, batch)| batch["leaves"] == true);
    let leaves: BTreeSet<&String> = leaves.map(|(subject, _)| subject).collect();
    assert_eq!(leaves.len(), 2, "both ends said farewell");
    drop(second);
}

/// The settings of a manager are those of the site while it has the lease; a transfer's class is that of its
/// sessions, if it is there.
#[test]
fn a_transfer_has_its_class_and_everybody_can_see_that() {
    let Some(fleet) = Fleet::new() else { return };
    let bus = fleet.runtime.block_on(NatsBus::connect(&fleet.nats.options())).unwrap();
    let look = |site: &str, fs: &str| fleet.runtime.block_on(site_targets(&bus, site, fs));
    let nobody = look("a", "").unwrap_err();
    assert!(matches!(&nobody, SiteTargetsRequestError::Nobody(site) if site == "a"), "{nobody}");
    assert!(nobody.hint().unwrap().contains("--share a"));
    fs::create_dir(fleet.at("a/set")).unwrap();
    fs::write(fleet.at("a/set/one"), noise(24 * MIB, 1)).unwrap();
    let class = GrantClientClass { weight: 4, ..GrantClientClass::default() };
    let classes = BTreeMap::from([("urgent".to_owned(), class)]);
    let settings = SharingSettings { classes, ..SharingSettings::default() };
    let shares = vec![SiteSharing { settings, ..SiteSharing::by_default("a") }, SiteSharing::by_default("b")];
    let _members =
        (fleet.manager_with(|options| options.shares = shares), fleet.mover("a", 4), fleet.mover("b", 4));
    let began = Instant::now();
    while look("a", "").is_err() || look("b", "").is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody shares");
    }
    let urgent = TransferOptions::default()
        .with("class", "urgent")
        .with("bwlimit", 6_000_000)
        .with("chunk-size", 8 << 20);
    let id = fleet.submit("a/set", "b/set", urgent).id;
    let holder = |targets: &[SharedTargetStatus]| {
        let holders =
            targets.iter().find_map(|target| Some((target.target.clone(), target.holders.first()?.clone())));
        holders.map(|(target, holder)| (target, holder.client, holder.class))
    };
    for (site, class) in [("a", "urgent"), ("b", "")] {
        let began = Instant::now();
        let (target, client, its) = loop {
            match holder(&look(site, "").unwrap()) {
                Some(seen) => break seen,
                None => assert!(began.elapsed() < PATIENCE, "nobody has a target of {site}"),
            }
        };
        assert_eq!(its, class, "{site}: {client}");
        assert!(!client.contains('/'), "{client}");
        assert!(look(site, &target).unwrap().iter().all(|seen| seen.target == target));
        assert_eq!(look(site, "nothing-of-this-name").unwrap(), []);
    }
    fleet.done(&id);
    assert_same(&fleet.at("a/set"), &fleet.at("b/set"));
}

#[test]
fn where_nobody_shares_nobody_asks() {
    let Some(fleet) = Fleet::new() else { return };
    fs::create_dir(fleet.at("a/set")).unwrap();
    fs::write(fleet.at("a/set/one"), noise(12 * MIB, 1)).unwrap();
    let asked = Asked::follow(&fleet);
    let _members = (fleet.manager(), fleet.mover("a", 4), fleet.mover("b", 4));
    fleet.done(&fleet.submit("a/set", "b/set", TransferOptions::default()).id);
    // But once, whether there is anybody.
    assert!(
        asked.all().iter().all(|(_, batch)| batch["client"] == "" && batch["number"] == 0),
        "{:?}",
        asked.all()
    );
}
