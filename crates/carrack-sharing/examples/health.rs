//! What the health feed says of storage targets, again and again: to try a site's queries out.
//!
//! cargo run --release -p carrack-cluster --example health -- FILE [STEPS]
//!
//! FILE holds what a daemon's configuration has below `[sharing.health]`, without that line.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use carrack_sharing::health::{LoadMonitor, LoadMonitorSettings};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("name a file with settings")?;
    let steps: u64 = arguments.next().map_or(Ok(u64::MAX), |text| text.parse())?;
    let settings: LoadMonitorSettings = toml::from_str(&std::fs::read_to_string(file)?)?;
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    let mut feed = LoadMonitor::new(settings, now_s())?;
    for step in 0..steps {
        if step > 0 {
            std::thread::sleep(Duration::from_secs(feed.every_s()));
        }
        let began = Instant::now();
        let step = feed.step(now_s(), &BTreeMap::new());
        println!("{} targets in {} ms", step.loads.len(), began.elapsed().as_millis());
        step.notices.iter().for_each(|notice| println!("  {notice}"));
        for (target, load) in &step.loads {
            println!(
                "  {target}: {:.0} % used, {:.0} % expected",
                load.present * 100.0,
                load.expected * 100.0
            );
        }
    }
    Ok(())
}
