//! Zones in a model of the kernel's hierarchy with its rules: files appear with the group, a process is in
//! one group, a group with members can't be removed, CPUs are in one partition, and are returned when the
//! partition ends (also after its removal, but with a delay: seen with Linux 6.1).

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::cgroup_tree::CgroupFileOperations;
use super::*;

const ROOT: &str = "/cgroup";

#[derive(Clone, Default)]
struct SimulatedCgroupTree {
    files: Arc<Mutex<BTreeMap<PathBuf, String>>>,
}

impl SimulatedCgroupTree {
    /// CPUs 0-7, this process in user.slice, no division yet.
    fn new() -> SimulatedCgroupTree {
        let model = SimulatedCgroupTree::default();
        let pid = std::process::id();
        model.put("cgroup.controllers", "cpuset cpu io memory");
        model.put("cgroup.subtree_control", "cpu memory");
        model.put("cpuset.cpus.effective", "0-7");
        model.put("cgroup.procs", "1");
        model.put("user.slice/cgroup.procs", &pid.to_string());
        model.put("/proc/self/cgroup", "0::/user.slice\n");
        model.starts(pid, 777);
        model
    }

    fn put(&self, path: &str, text: &str) {
        self.files.lock().unwrap().insert(Path::new(ROOT).join(path), text.to_string());
    }

    fn text(&self, path: &str) -> String {
        self.files.lock().unwrap().get(&Path::new(ROOT).join(path)).cloned().unwrap_or_default()
    }

    fn starts(&self, pid: u32, start: u64) {
        let fields = (4..22).map(|_| "0 ").collect::<String>();
        self.put(&format!("/proc/{pid}/stat"), &format!("{pid} (a (b) c) S {fields}{start} 0 0"));
    }

    fn tree(&self) -> Option<CgroupTree> {
        Some(CgroupTree::of_files(Path::new(ROOT), Path::new("/proc"), Box::new(self.clone())))
    }

    fn zone(&self, kind: CoreIsolationMode, cpus: &str) -> Result<ProtectedCoresGuard, CoreZoneError> {
        ProtectedCoresGuard::open_in(self.tree(), kind, &cpus.parse().unwrap(), &NodeSet::from_iter([0]))
    }

    fn zones(&self) -> Vec<String> {
        let names = self.list_dirs(Path::new(ROOT)).unwrap();
        names.into_iter().filter(|name| name.starts_with("carrack-zone-")).collect()
    }

    /// Starts or ends a partition, if that is allowed.
    fn partition(&self, group: &Path, wanted: &str) -> String {
        let is_one = self.read(&group.join("cpuset.cpus.partition")).unwrap() == "root";
        let state = if wanted == "root" { self.partition_state(group) } else { wanted.to_string() };
        let cpus = self.read(&group.join("cpuset.cpus")).unwrap().parse::<CpuSet>().unwrap();
        let left = self.text("cpuset.cpus.effective").parse::<CpuSet>().unwrap();
        match state.as_str() {
            "root" => self.put("cpuset.cpus.effective", &left.difference(&cpus).to_string()),
            _ if is_one => self.put("cpuset.cpus.effective", &left.union(&cpus).to_string()),
            _ => {}
        }
        state
    }

    fn partition_state(&self, group: &Path) -> String {
        let files = self.files.lock().unwrap();
        let cpus = files[&group.join("cpuset.cpus")].parse::<CpuSet>().unwrap();
        let taken = files.iter().any(|(path, text)| {
            let other = path.parent().unwrap();
            path.ends_with("cpuset.cpus.partition")
                && text == "root"
                && other != group
                && !files[&other.join("cpuset.cpus")]
                    .parse::<CpuSet>()
                    .unwrap()
                    .intersection(&cpus)
                    .is_empty()
        });
        if taken { "root invalid (Cpu list in cpuset.cpus not exclusive)" } else { "root" }.to_string()
    }

    fn leave_all(&self, pid: &str) {
        let mut files = self.files.lock().unwrap();
        for (_, text) in files.iter_mut().filter(|(path, _)| path.ends_with("cgroup.procs")) {
            *text = text.lines().filter(|line| *line != pid).map(|line| format!("{line}\n")).collect();
        }
    }
}

impl CgroupFileOperations for SimulatedCgroupTree {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.lock().unwrap().get(path).cloned().ok_or(ErrorKind::NotFound.into())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let before = self.read(path)?;
        let new = match path.file_name().unwrap().to_str().unwrap() {
            "cgroup.subtree_control" if text == "+cpuset" => format!("{before} cpuset"),
            "cgroup.subtree_control" => before.replace(" cpuset", ""),
            "cgroup.procs" => {
                self.leave_all(text);
                format!("{before}{text}\n")
            }
            "cpuset.cpus.partition" => self.partition(path.parent().unwrap(), text),
            _ => text.to_string(),
        };
        self.files.lock().unwrap().insert(path.to_path_buf(), new);
        Ok(())
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut files = self.files.lock().unwrap();
        let divides = files[&Path::new(ROOT).join("cgroup.subtree_control")].contains("cpuset");
        if files.contains_key(&path.join("cgroup.procs")) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let names = ["cgroup.procs", "cpuset.cpus", "cpuset.mems", "cpuset.cpus.partition"];
        for name in names.into_iter().take(if divides { 4 } else { 1 }) {
            files.insert(path.join(name), String::new());
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !self.read(&path.join("cgroup.procs"))?.is_empty() {
            return Err(ErrorKind::ResourceBusy.into());
        }
        self.files.lock().unwrap().retain(|file, _| !file.starts_with(path));
        Ok(())
    }

    fn list_dirs(&self, path: &Path) -> io::Result<Vec<String>> {
        let files = self.files.lock().unwrap();
        let in_it = files.keys().filter_map(|file| file.strip_prefix(path).ok());
        let mut names: Vec<String> = in_it
            .filter(|file| file.components().count() > 1)
            .filter_map(|file| Some(file.components().next()?.as_os_str().to_str()?.to_string()))
            .collect();
        names.dedup();
        Ok(names)
    }
}

#[test]
fn a_hard_zone_comes_and_goes() {
    let (model, pid) = (SimulatedCgroupTree::new(), std::process::id());
    let before = model.files.lock().unwrap().clone();
    let zone = model.zone(CoreIsolationMode::Hard, "2-5").unwrap();
    let name = format!("carrack-zone-{pid}-777");
    assert_eq!(model.zones(), std::slice::from_ref(&name));
    assert_eq!(model.text(&format!("{name}/cpuset.cpus")), "2-5");
    assert_eq!(model.text(&format!("{name}/cpuset.mems")), "0");
    assert_eq!(model.text(&format!("{name}/cgroup.procs")), format!("{pid}\n"));
    assert_eq!(model.text("cpuset.cpus.effective"), "0-1,6-7");
    assert!(model.text("cgroup.subtree_control").contains("cpuset") && zone.is_hard());
    assert!(zone.note().contains("CPU 2-5") && zone.note().contains(&name), "{}", zone.note());
    model.put(&format!("{name}/cgroup.procs"), &format!("{pid}\n4711\n"));
    zone.close().unwrap();
    assert_eq!(model.text("user.slice/cgroup.procs"), format!("{pid}\n4711\n"), "with what it started");
    model.put("user.slice/cgroup.procs", &pid.to_string());
    let after = model.files.lock().unwrap().clone();
    assert_eq!(
        after,
        BTreeMap::from_iter(before.into_iter().map(|(k, v)| {
            // Once a process has moved, they are written one per line.
            let text = if k.ends_with("cgroup.procs") && !k.starts_with("/cgroup/user.slice") {
                format!("{v}\n")
            } else {
                v
            };
            (k, text)
        }))
    );
}

#[test]
fn what_others_have_divided_stays_divided() {
    let model = SimulatedCgroupTree::new();
    drop(model.zone(CoreIsolationMode::Hard, "2").unwrap());
    assert!(!model.text("cgroup.subtree_control").contains("cpuset"), "we began, we end");
    let zone = model.zone(CoreIsolationMode::Hard, "2").unwrap();
    model.put("machine.slice/cpuset.cpus", "4-7");
    drop(zone);
    assert!(model.text("cgroup.subtree_control").contains("cpuset"), "somebody came to rely on it");
    drop(model.zone(CoreIsolationMode::Hard, "2").unwrap());
    assert!(model.text("cgroup.subtree_control").contains("cpuset"), "it was so before");
}

#[test]
fn a_process_whose_group_is_gone_goes_to_the_top() {
    let model = SimulatedCgroupTree::new();
    let zone = model.zone(CoreIsolationMode::Hard, "2").unwrap();
    model.files.lock().unwrap().remove(Path::new("/cgroup/user.slice/cgroup.procs"));
    drop(zone);
    assert!(model.text("cgroup.procs").contains(&std::process::id().to_string()));
    assert_eq!(model.zones(), [""; 0]);
}

#[test]
fn what_the_kernel_calls_invalid_is_no_zone_and_leaves_nothing() {
    let model = SimulatedCgroupTree::new();
    model.starts(50, 5);
    model.put("carrack-zone-50-5/cpuset.cpus", "3-4");
    model.put("carrack-zone-50-5/cpuset.cpus.partition", "root");
    model.put("carrack-zone-50-5/cgroup.procs", "50");
    let error = model.zone(CoreIsolationMode::Hard, "2-3").err().unwrap();
    assert!(error.to_string().contains("not exclusive"), "{error}");
    assert_eq!(model.zones(), ["carrack-zone-50-5"]);
    assert_eq!(model.text("user.slice/cgroup.procs"), std::process::id().to_string());
    let soft = model.zone(CoreIsolationMode::Auto, "2-3").unwrap();
    assert!(!soft.is_hard() && soft.note().contains("not exclusive"), "{}", soft.note());
}

#[test]
fn where_no_hard_zone_can_be_the_reason_is_said() {
    type TestCgroupFault = fn(&SimulatedCgroupTree);
    let cases: [(&str, TestCgroupFault, &str); 4] = [
        ("0-7", |_| (), "one has to stay outside"),
        ("2", |model| model.put("cgroup.type", "domain"), "container"),
        ("2", |model| model.put("cgroup.controllers", "cpu"), "no cpuset controller"),
        ("", |_| (), "no core is planned"),
    ];
    for (cpus, spoil, reason) in cases {
        let model = SimulatedCgroupTree::new();
        spoil(&model);
        let before = model.files.lock().unwrap().clone();
        let error = model.zone(CoreIsolationMode::Hard, cpus).err().unwrap();
        assert!(error.to_string().contains(reason), "{error}");
        assert_eq!(*model.files.lock().unwrap(), before, "{reason}");
        assert!(!model.zone(CoreIsolationMode::Auto, cpus).unwrap().is_hard());
    }
    let no_tree =
        ProtectedCoresGuard::open_in(None, CoreIsolationMode::Hard, &CpuSet::from_iter([1]), &NodeSet::new());
    assert!(matches!(no_tree, Err(CoreZoneError::NoCgroup2)));
}

#[test]
fn a_process_has_one_zone() {
    let model = SimulatedCgroupTree::new();
    let zone = model.zone(CoreIsolationMode::Hard, "2").unwrap();
    let with_one = model.files.lock().unwrap().clone();
    let error = model.zone(CoreIsolationMode::Hard, "3").err().unwrap();
    assert!(error.to_string().contains("can't make"), "{error}");
    assert_eq!(*model.files.lock().unwrap(), with_one, "the first is as it was");
    drop(zone);
    assert_eq!(model.zones(), [""; 0]);
}

#[test]
fn off_and_soft_touch_nothing() {
    let model = SimulatedCgroupTree::new();
    let before = model.files.lock().unwrap().clone();
    assert_eq!(model.zone(CoreIsolationMode::Off, "2").unwrap().note(), "no zone");
    assert!(model.zone(CoreIsolationMode::Soft, "2").unwrap().note().contains("our threads stay on CPU 2"));
    assert_eq!(*model.files.lock().unwrap(), before);
}

#[test]
fn zones_of_killed_processes_are_found_and_removed() {
    let model = SimulatedCgroupTree::new();
    model.starts(50, 5);
    model.starts(60, 6_000);
    model.starts(70, 7);
    for (name, members) in [
        ("carrack-zone-50-5", "50"),     // alive
        ("carrack-zone-60-6", "61\n62"), // its number is another's now; children are left
        ("carrack-zone-65-65", ""),      // gone
        ("carrack-zone-2-7", "70"),      // alive, in another PID namespace
        ("carrack-zone-3-8", "0"),       // not to be seen from here
        ("carrack-zone-x-8", ""),        // not ours
    ] {
        model.put(&format!("{name}/cgroup.procs"), members);
        model.put(&format!("{name}/cpuset.cpus"), "2-3\n");
        model.put(&format!("{name}/cpuset.cpus.partition"), "member");
    }
    model.put("carrack-zone-65-65/cpuset.cpus.partition", "root");
    model.put("cpuset.cpus.effective", "0-1,4-7");
    let tree = model.tree().unwrap();
    let stale: Vec<_> = stale_zones(&tree).unwrap().into_iter().map(|zone| zone.name).collect();
    assert_eq!(stale, ["carrack-zone-60-6", "carrack-zone-65-65"]);
    let repaired = remove_stale_zones(&tree).unwrap();
    assert_eq!(repaired[0].to_string(), "carrack-zone-60-6 keeps CPU 2-3 for process 60, which is gone");
    assert_eq!(stale_zones(&tree).unwrap(), []);
    assert_eq!(model.text("cpuset.cpus.effective"), "0-7");
    assert_eq!(model.zones().len(), 4);
    assert!(model.text("cgroup.procs").ends_with("61\n62\n"));
}
