use super::*;
use crate::queue::QueueOrderRules;

const SAMPLE: &str = r#"
[tls]
certificate = "/etc/carrack/server.pem"
key = "/etc/carrack/server-key.pem"

[[export]]
name = "data"
path = "/srv/data"
allow = [
  { identity = "alice", read = true, write = true, sessions = 4, rate = "1 GB/s" },
  { identity = "*", list = true },
]
"#;

#[test]
fn a_short_one_means_what_it_says() {
    let config = DaemonConfig::parse(SAMPLE).unwrap();
    assert_eq!(config.listen, ["[::]:7512".parse().unwrap()]);
    assert_eq!(config.limits, DaemonLimits::default());
    let (export, rule) = config.rule("data", "alice").unwrap();
    assert_eq!(
        (export.protection, rule.session_rate()),
        (carrack_model::ProtectionLevel::Private, 250_000_000)
    );
    use carrack_engine::AccessKind::{List, MakeDirectory, Read, Remove, Verify, Write};
    assert!([Read, Write, List, MakeDirectory, Remove, Verify].iter().all(|&deed| rule.allows(deed)));
    let (_, anybody) = config.rule("data", "bob").unwrap();
    assert_eq!(
        [Read, Write, List, MakeDirectory, Remove, Verify].map(|deed| anybody.allows(deed)),
        [false, false, true, false, false, false]
    );
    assert!(config.rule("other", "alice").is_none());
    assert_eq!(config.open_to("bob").collect::<Vec<_>>(), ["data"]);
}

#[test]
fn the_first_rule_counts_and_no_other() {
    let text = SAMPLE
        .replace("identity = \"*\", list", "identity = \"alice\", list")
        .replace("\"alice\", read = true", "\"al*\", read = true");
    let config = DaemonConfig::parse(&text).unwrap();
    assert!(config.rule("data", "alice").unwrap().1.write);
    assert!(config.rule("data", "bob").is_none());
}

/// A change of the sample → the line of its error, and a part of the message.
#[test]
fn every_error_names_its_line_and_has_a_hint() {
    for (from, to, line, said) in [
        ("[tls]", "lsten = []\n[tls]", 2, "unknown field `lsten`"),
        ("[tls]", "listen = []\n[tls]", 2, "nowhere to listen"),
        ("[tls]", "listen = [\"everywhere\"]\n[tls]", 2, "socket address"),
        ("[tls]", "audit = \"audit.jsonl\"\n[tls]", 2, "not absolute"),
        ("[tls]", "[limits]\nhalf_open = 0\n[tls]", 3, "0 is out of range"),
        ("[tls]", "[limits]\nbuffer = \"lots\"\n[tls]", 3, "no amount of bytes"),
        ("[tls]", "[limits]\nidle = 3\n[tls]", 3, "unknown field `idle`"),
        ("[tls]", "[spill]\ndirectories = []\n[tls]", 3, "0 directories"),
        ("[tls]", "[spill]\ndirectories = [\"/nvme\"]\n[tls]", 3, "a directory and a size are needed"),
        ("[tls]", "[spill]\ndirectories = [\"nvme:1GiB\"]\n[tls]", 3, "not absolute"),
        ("[tls]", "[tokens]\nissuers = [{ name = \"\", audience = \"x\", key = \"/k\" }]\n[tls]", 3, "empty"),
        ("[tls]", "[tokens]\nmax_lifetime_seconds = 90000\n[tls]", 3, "out of range"),
        ("key = \"/etc/carrack/server-key.pem\"", "", 2, "missing field `key`"),
        ("key = \"/etc/carrack/server-key.pem\"", "key = 7", 4, "invalid type"),
        ("certificate = \"", "certificate = \"/a\"\ncertificate = \"", 4, "duplicate"),
        ("name = \"data\"", "name = \"../etc\"", 7, "can't be an export's name"),
        ("name = \"data\"", "name = \"data\"\nmode = 3", 8, "unknown field `mode`"),
        ("name = \"data\"", "name = \"data\"\nprotection = \"none\"", 8, "no level of protection"),
        ("path = \"/srv/data\"", "path = \"srv\"", 8, "not absolute"),
        ("1 GB/s", "1 GB", 10, "no rate"),
        ("1 GB/s", "0 GB/s", 10, "above 0"),
        // An error about several keys is reported where their list begins, and names the identity.
        ("sessions = 4, ", "", 9, "no number of sessions"),
        ("read = true, write = true", "read = false", 9, "allows nothing"),
        ("list = true", "lst = true", 11, "unknown field `lst`"),
        ("[tls]", "[tls", 2, ""),
    ] {
        assert!(SAMPLE.contains(from), "{from}");
        let error = DaemonConfig::parse(&SAMPLE.replacen(from, to, 1)).unwrap_err();
        assert!(error.to_string().contains(said), "{to}: {error}");
        assert_eq!(error.line(), Some(line), "{to}: {error}");
        assert!(error.to_string().starts_with(&format!("line {line}")), "{error}");
        assert!(!error.hint().is_empty() && !error.to_string().contains("hint:"), "{error}");
    }
}

#[test]
fn exports_have_names_of_their_own() {
    let (_, export) = SAMPLE.split_once("[[export]]").unwrap();
    let error = DaemonConfig::parse(&format!("{SAMPLE}[[export]]{export}")).unwrap_err();
    assert!(error.to_string().contains("two exports have the name \"data\""), "{error}");
    let none = DaemonConfig::parse(SAMPLE.split_once("[[export]]").unwrap().0).unwrap_err();
    assert!(none.to_string().contains("missing field `export`"), "{none}");
}

#[test]
fn a_file_without_end_is_not_read_as_one() {
    let error = DaemonConfig::parse(&"#\n".repeat(MAX_CONFIG_BYTES)).unwrap_err();
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[test]
fn a_queue_may_be_alone() {
    let queue = "[queue]\ndirectory = \"/q\"\n";
    let alone = DaemonConfig::local_alone(queue).unwrap().unwrap();
    assert!(alone.sharing_socket().is_none());
    assert_eq!(alone.queue.unwrap().settings(None).max_running, 2);
    assert!(DaemonConfig::local_alone("[tls]\n[queue]\n").unwrap().is_none(), "it is not alone");
    assert!(
        DaemonConfig::local_alone("").unwrap().is_none()
            && DaemonConfig::local_alone("[queue").unwrap().is_none()
    );
    for wrong in [
        "directory = \"q\"",
        "directory = \"/q\"\nmax_running = 0",
        "directory = \"/q\"\nmood = 1",
        "directory = \"/q\"\npriority_max = 4",
        "directory = \"/q\"\npriority_max = 10",
        "directory = \"/q\"\npriorities = { ops = 10 }",
        "directory = \"/q\"\nweights = { a = 0.0 }",
        "directory = \"/q\"\nweights = { a = nan }",
        "directory = \"/q\"\nages_minutes = 0",
        "directory = \"/q\"\nsites = { \"a b\" = \"h:\" }",
        "directory = \"/q\"\nsites = { a = \"--json\" }",
        "directory = \"/q\"\nsites = { a = \"carrack://h/e/\" }",
    ] {
        let error = DaemonConfig::local_alone(&format!("[queue]\n{wrong}\n")).unwrap_err();
        assert!(error.line().is_some() && !error.hint().is_empty(), "{wrong}: {error}");
    }
}

fn turns(more: &str) -> QueueOrderRules {
    let text = format!("[queue]\ndirectory = \"/q\"\n{more}");
    DaemonConfig::local_alone(&text).unwrap().unwrap().queue.unwrap().settings(None).turns
}

#[test]
fn a_queue_has_rules_of_its_order() {
    assert_eq!(turns(""), QueueOrderRules::default());
    let said = turns(
        "priority_max = 7\npriorities = { ops = 9 }\nweights = { projx = 2, alice = 0.5 }\n\
         accounts = { bob = \"projx\" }\nages_minutes = 5\nhalves_minutes = 120",
    );
    assert_eq!((said.priority_max, said.priorities["ops"], &*said.accounts["bob"]), (7, 9, "projx"));
    assert_eq!((said.weights["projx"], said.weights["alice"]), (2.0, 0.5));
    assert_eq!((said.ages_every, said.halves_every), (Duration::from_secs(300), Duration::from_secs(7_200)));
}

#[test]
fn sharing_is_what_it_says() {
    let text = "[sharing]\nusers = 2\nburst_ms = 250\nburst_bytes = \"64MiB\"\n\
                [sharing.classes.urgent]\nweight = 4\nmin_rate = \"200 MB/s\"\nmin_rate_all = \"1 GB/s\"\n\
                deadline_rate = \"2 GB/s\"\nusers = [\"alice\"]\ngroups = [\"hpc\"]\n\
                [sharing.classes.default]\nweight = 2\n";
    let local = DaemonConfig::local_alone(text).unwrap().unwrap();
    assert_eq!(local.sharing_socket().unwrap(), std::path::Path::new(DEFAULT_SHARING_SOCKET));
    let settings = local.sharing.clone().unwrap().settings();
    assert_eq!((settings.grants.users, settings.grants.burst_bytes), (2, 64 << 20));
    assert_eq!(settings.grants.burst, Duration::from_millis(250));
    let urgent = &settings.classes["urgent"];
    let rates = (urgent.client_bytes_per_s, urgent.class_bytes_per_s, urgent.deadline_bytes_per_s);
    assert_eq!((urgent.weight, rates), (4, (200_000_000, 1_000_000_000, 2_000_000_000)));
    assert_eq!(settings.classes["default"].weight, 2);
    let named = DaemonConfig::local_alone("[sharing]\nsocket = \"/q/s\"\n").unwrap().unwrap();
    assert_eq!(named.sharing_socket().unwrap(), std::path::Path::new("/q/s"));
    let defaults = DaemonConfig::local_alone("[sharing]\n").unwrap().unwrap().sharing.unwrap().settings();
    assert_eq!(defaults, carrack_sharing::SharingSettings::default());
    let beside = DaemonConfig::parse(&format!("{SAMPLE}{text}")).unwrap().local().unwrap();
    assert!(beside.queue.is_none() && beside.sharing == local.sharing);
    assert!(beside.describe()[0].contains("urgent"), "{:?}", beside.describe());
}

#[test]
fn sharing_that_could_not_be_meant_is_refused() {
    for (wrong, said) in [
        ("users = 0", "out of range"),
        ("burst_ms = 100", "out of range"),
        ("burst = 500", "unknown field `burst`"),
        ("burst_bytes = \"0\"", "no amount of bytes"),
        ("socket = \"s\"", "not absolute"),
        ("classes = { \"a b\" = {} }", "can't name a class"),
        ("classes = { a = { weight = 0 } }", "out of range"),
        ("classes = { a = { min_rate = \"1 GB\" } }", "no rate"),
        ("classes = { a = { rate = \"1 GB/s\" } }", "unknown field `rate`"),
        ("classes = { a = { users = [] } }", "nobody may use"),
        ("classes = { default = { users = [\"alice\"] } }", "everybody's"),
    ] {
        let error = DaemonConfig::local_alone(&format!("[sharing]\n{wrong}\n")).unwrap_err();
        assert!(error.to_string().contains(said), "{wrong}: {error}");
        assert!(error.line().is_some() && !error.hint().is_empty(), "{wrong}: {error}");
    }
}

#[test]
fn sharing_may_measure_what_computation_does() {
    let text = "[sharing]\n[sharing.health]\nprometheus = \"http://m:9090\"\npreset = \"ceph\"\n";
    let sharing = DaemonConfig::local_alone(text).unwrap().unwrap().sharing.unwrap();
    assert_eq!(sharing.health.unwrap().prometheus.to_string(), "http://m:9090");
    let error = DaemonConfig::local_alone("[sharing.health]\nprometheus = \"m\"\n").unwrap_err();
    assert!(error.to_string().contains("no address") && error.hint().contains("http://HOST:PORT"), "{error}");
}
