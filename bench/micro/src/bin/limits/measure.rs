//! The schedule: interleaved repetitions, warm memory before each run, and the time of both ends.

use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::crew::Crew;
use crate::kind::Kind;
use crate::machine;
use crate::options::{Options, Sizes};
use crate::place::Place;
use crate::reserve::{EXTRA_BYTES, EXTRA_PER_FILE_BYTES, KEEP_FREE_BYTES, Reserve};
use crate::row::{Row, Run};

/// Files on tmpfs take whole pages.
const PAGE_BYTES: u64 = 4096;

/// Runs all measurements that are asked for.
pub fn measure_all(options: &Options) -> Result<Vec<Row>> {
    let sizes = &options.sizes;
    let wanted = |kind: &Kind| options.only.as_ref().is_none_or(|words| kind.to_string().contains(words));
    let new_row = |kind: Kind| Row::new(kind, kind.bytes(sizes), kind.files(sizes));
    let mut rows: Vec<Row> = Kind::all().into_iter().filter(wanted).map(new_row).collect();
    ensure!(
        !rows.is_empty(),
        "nothing has these words in its name; without --only the tables have all names"
    );
    check_room(options)?;
    let scratch = tempfile::Builder::new().prefix("carrack-limits.").tempdir_in(&options.work_dir);
    let scratch = scratch.with_context(|| format!("in {}", options.work_dir.display()))?;
    let place = Place::make(scratch.path(), sizes)?;
    for repetition in 0..options.repetitions {
        // Each repetition starts with another measurement, so that none always follows the same one.
        let turn = repetition as usize % rows.len();
        for index in (turn..rows.len()).chain(0..turn) {
            measure_one(&mut rows[index], repetition, sizes, &place)?;
            report_progress(&rows[index], repetition, options.repetitions);
        }
    }
    Ok(rows)
}

/// Runs one measurement. After an error it is not tried again.
fn measure_one(row: &mut Row, repetition: u32, sizes: &Sizes, place: &Place) -> Result<()> {
    if row.problem.is_some() {
        return Ok(());
    }
    let run = run_once(row.kind, sizes, place).and_then(|run| {
        if repetition == 0 && row.kind.makes_files() {
            place.verify_copies(row.kind, sizes)?;
        }
        Ok(run)
    });
    match run {
        Ok(run) => row.runs.push(run),
        Err(error) => row.problem = Some(format!("{error:#}")),
    }
    place.clear_copies()
}

fn run_once(kind: Kind, sizes: &Sizes, place: &Place) -> Result<Run> {
    let reserve = Reserve::filled(if kind.makes_files() { new_memory_bytes(kind, sizes) } else { 0 });
    let mut crew = Crew::start(kind, sizes, place)?;
    reserve.release();
    let (start, start_busy_s) = (Instant::now(), machine::busy_s());
    crew.go()?;
    let outcomes = crew.outcomes()?;
    let wall_s = start.elapsed().as_secs_f64();
    let busy_s = machine::busy_s() - start_busy_s;
    ensure!(outcomes.windows(2).all(|pair| pair[0].digest == pair[1].digest), "the ends' hashes differ");
    let cpu_s = outcomes.iter().map(|outcome| outcome.cpu_s).sum();
    Ok(Run { wall_s, cpu_s, foreign_cores: ((busy_s - cpu_s) / wall_s).max(0.0) })
}

/// Returns the memory of new files, including inodes, buffers and workers.
fn new_memory_bytes(kind: Kind, sizes: &Sizes) -> u64 {
    let files = kind.files(sizes);
    let contents_bytes = kind.bytes(sizes) / files.max(1);
    files * (contents_bytes.next_multiple_of(PAGE_BYTES) + EXTRA_PER_FILE_BYTES) + EXTRA_BYTES
}

/// Checks that sources and copies fit: without a reserve the results would be meaningless.
fn check_room(options: &Options) -> Result<()> {
    let of_small = |sizes: &Sizes| sizes.small_count * sizes.small_bytes.next_multiple_of(PAGE_BYTES);
    let needed_bytes = 2 * (options.sizes.volume_bytes() + of_small(&options.sizes));
    let free_bytes = machine::free_bytes(&options.work_dir);
    let available_bytes = machine::available_memory_bytes().saturating_sub(KEEP_FREE_BYTES + EXTRA_BYTES);
    let room_bytes = free_bytes.min(available_bytes);
    ensure!(
        needed_bytes <= room_bytes,
        "sources and copies need {} MiB of memory, and {} has room for {} MiB\nhint: --file-size 256MiB",
        needed_bytes >> 20,
        options.work_dir.display(),
        room_bytes >> 20
    );
    Ok(())
}

/// Prints progress on stderr; stdout is for data.
fn report_progress(row: &Row, repetition: u32, repetitions: u32) {
    let words = match (&row.problem, row.runs.last()) {
        (Some(problem), _) => format!("can't be measured: {problem}"),
        (None, Some(run)) => {
            let rate = row.show_rate(row.rate_of(run));
            format!("{rate} {} in {:.2} s, {:.2} CPU s", row.rate_unit(), run.wall_s, run.cpu_s)
        }
        (None, None) => "nothing".to_owned(),
    };
    eprintln!("{}/{repetitions} {}: {words}", repetition + 1, row.kind);
}
