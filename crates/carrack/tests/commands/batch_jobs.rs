//! The job script of docs/batch-jobs.md in a real Slurm: `testbed/slurm` starts slurmctld and slurmd.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::common::CARRACK;
use crate::common::file_system::FileSystem;
use crate::common::process::{run, wait_for};
use crate::common::storage_double::StorageDouble;
use crate::common::tree::noise;

const PAGE: &str = include_str!("../../../../docs/batch-jobs.md");

/// Returns the page's script with this text.
fn script_with(text: &str) -> &'static str {
    let mut blocks = PAGE.split("```sh\n").skip(1).filter_map(|block| block.split_once("```"));
    blocks.find(|(script, _)| script.contains(text)).expect("the page has the script").0
}

/// Runs a command of Slurm's; returns its output.
fn slurm(cluster: &FileSystem, words: &[&str]) -> String {
    let mut command = Command::new(words[0]);
    let output = run(command.args(&words[1..]).env("SLURM_CONF", cluster.beneath("slurm.conf")));
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The input is copied to the burst buffer when the job's time is over: the signal shows the status, ends the
/// copy, and requeues the job, which then computes and copies the results.
#[test]
fn a_job_whose_time_is_over_continues_after_its_requeue() {
    let Some(cluster) = FileSystem::start("slurm", &[]) else { return };
    let plant = |root: &Path| fs::create_dir(root.join("burst")).unwrap();
    let Some(double) = StorageDouble::start(&[], plant) else { return };
    let (project, work) = (cluster.local("project"), cluster.local("work"));
    for directory in [&project.join("run7/input"), &work] {
        fs::create_dir_all(directory).unwrap();
    }
    fs::write(project.join("run7/input/large"), noise(3_000_001)).unwrap();
    let compute = work.join("compute");
    fs::write(&compute, "#!/bin/sh\nmkdir -p \"$2\" && cp \"$1\"/large \"$2\"/result\n").unwrap();
    fs::set_permissions(&compute, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(work.join("job.sh"), script_with("copy_and_wait() {")).unwrap();

    double.ask("rule hang:write:path=large");
    let bin = Path::new(CARRACK).parent().unwrap().display().to_string();
    let environment = format!(
        "--export=PROJECT={},BURST={},PATH={bin}:/usr/local/bin:/usr/bin:/bin,HOME={},XDG_STATE_HOME=/dev/null/state",
        project.display(),
        double.path("burst").display(),
        work.display(),
    );
    let output = format!("--output={}", work.join("out").display());
    let [directory, script] =
        [format!("--chdir={}", work.display()), work.join("job.sh").display().to_string()];
    let resources = ["--cpus-per-task=1", "--mem=0"];
    let submit = [&["sbatch", "--parsable", &environment, &output, &directory], &resources[..], &[&script]];
    let id = slurm(&cluster, &submit.concat());

    let said = || fs::read_to_string(work.join("out")).unwrap_or_default();
    wait_for("the hanging copy", || double.ask("rules").contains("hanging 1").then_some(()));
    slurm(&cluster, &["scancel", "--batch", "--signal=USR1", &id]);
    wait_for("the end of the copy", || said().contains("interrupted, waits for ").then_some(()));
    double.ask("clear");
    let results = project.join("run7/results");
    wait_for("the end of the requeued job", || {
        let queue = slurm(&cluster, &["squeue", "--noheader", "--format=%T"]);
        (queue.is_empty() && results.join("result").exists()).then_some(())
    });
    assert!(said().contains("carrack: after 0:"), "SIGUSR1 shows the status: {}", said());
    let contents = |path: &Path| fs::read(path).unwrap();
    assert!(contents(&project.join("run7/input/large")) == contents(&results.join("result")));
}
