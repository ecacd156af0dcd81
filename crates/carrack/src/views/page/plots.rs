//! The pictures on the page: rates over time with the limiting stage, heat strips of targets and lanes, sizes
//! of files.
//!
//! Colours are variables of the page, so that they follow light and dark.

use carrack_model::LimitingStage;

use super::bins::{TimeBin, TimeBins};
use super::record::HtmlReportData;
use crate::size;
use crate::views::canvas::{self, CanvasArea, CanvasPoint, SvgBoxStyle, SvgCanvas, SvgTextFont};
use crate::views::quantity::{clock, rate};

const INK: &str = "var(--ink)";
const GRID: &str = "var(--grid)";
const HEAT: &str = "var(--written)";

const TEXT: SvgTextFont<'static> = SvgTextFont { colour: INK, ..canvas::TEXT };
const MIDDLE: SvgTextFont<'static> = SvgTextFont { colour: INK, ..canvas::MIDDLE };

/// The left edge of the curves, after the labels, and their size.
const LEFT: f64 = 110.0;
const WIDTH: f64 = 840.0;
const HEIGHT: f64 = 220.0;

/// Horizontal lines in a plot of rates.
const LEVELS: u32 = 4;

/// Cells of a heat strip, and steps of their opacity.
const COLUMNS: usize = 120;
const SHADES: f64 = 10.0;

/// Returns the colour of a limiting stage.
pub fn colour_of(limiter: LimitingStage) -> &'static str {
    match limiter {
        LimitingStage::Unknown | LimitingStage::Rate => GRID,
        LimitingStage::Scan => "var(--scan)",
        LimitingStage::SourceStorage => "var(--read)",
        LimitingStage::Network => "var(--sent)",
        LimitingStage::SinkStorage => "var(--written)",
    }
}

/// Plots the rates of reading, sending and writing until `end_s`, and below them the limiting stage.
pub fn plot_rates(record: &HtmlReportData, end_s: f64) -> String {
    // Later stages are drawn over earlier ones with thinner lines, so that equal curves all stay visible.
    let curves = [
        ("read", "var(--read)", 4.5, &record.read.bins),
        ("sent", "var(--sent)", 3.0, &record.sent.bins),
        ("written", "var(--written)", 1.5, &record.written.bins),
    ];
    let curves: Vec<_> = curves.into_iter().filter(|(.., bins)| bins.total() > 0.0).collect();
    let highest = curves.iter().flat_map(|(.., bins)| bins.iter()).map(|bin| bin.per_s).fold(0.0, f64::max);
    let mut plot = TimePlot { canvas: SvgCanvas::default(), end_s, top: round_up(highest) };
    plot.draw_grid();
    for (nth, (name, colour, width, bins)) in curves.iter().enumerate() {
        plot.draw_curve(bins, colour, *width);
        plot.draw_legend_entry(nth, name, colour);
    }
    plot.draw_limiting_stages(record);
    plot.canvas.inline(8.0, "rates of reading, sending and writing over time, and what limited")
}

struct TimePlot {
    canvas: SvgCanvas,
    end_s: f64,
    /// The rate at the upper edge.
    top: f64,
}

impl TimePlot {
    fn x(&self, at_s: f64) -> f64 {
        LEFT + WIDTH * (at_s / self.end_s).clamp(0.0, 1.0)
    }

    fn y(&self, rate: f64) -> f64 {
        30.0 + HEIGHT * (1.0 - (rate / self.top).clamp(0.0, 1.0))
    }

    fn draw_grid(&mut self) {
        for level in 0..=LEVELS {
            let height = self.top * f64::from(level) / f64::from(LEVELS);
            let left = CanvasPoint { x: LEFT, y: self.y(height) };
            self.canvas.line(&[left, left.moved(WIDTH, 0.0)], GRID, 1.0);
            self.canvas.text(CanvasPoint { x: 4.0, y: left.y + 4.0 }, TEXT, &rate(height as u64));
        }
        draw_time_axis(&mut self.canvas, self.end_s, 30.0, HEIGHT);
    }

    /// Draws a point in the middle of each bin; a level line if there is a single bin.
    fn draw_curve(&mut self, bins: &TimeBins, colour: &str, width: f64) {
        let all: Vec<TimeBin> = bins.iter().collect();
        let (Some(first), Some(last)) = (all.first(), all.last()) else { return };
        let middles = all.iter().map(|bin| ((bin.start_s + bin.end_s) / 2.0, bin.per_s));
        let ends = [(first.start_s, first.per_s), (last.end_s, last.per_s)];
        let places = [ends[0]].into_iter().chain(middles).chain([ends[1]]);
        let places: Vec<CanvasPoint> =
            places.map(|(at_s, per_s)| CanvasPoint { x: self.x(at_s), y: self.y(per_s) }).collect();
        self.canvas.line(&places, colour, width);
    }

    fn draw_legend_entry(&mut self, nth: usize, name: &str, colour: &str) {
        let at = CanvasPoint { x: LEFT + 110.0 * nth as f64, y: 18.0 };
        draw_legend_key(&mut self.canvas, at, name, colour);
    }

    /// Draws a strip: in each column the stage that limited for most of the time.
    fn draw_limiting_stages(&mut self, record: &HtmlReportData) {
        let at = CanvasPoint { x: LEFT, y: 30.0 + HEIGHT + 28.0 };
        self.canvas.text(CanvasPoint { x: 4.0, y: at.y + 11.0 }, TEXT, "limited by");
        let columns: Vec<(LimitingStage, Vec<TimeBin>)> = record
            .limited
            .iter()
            .map(|(limiter, bins)| (*limiter, bins.in_columns(self.end_s, COLUMNS)))
            .collect();
        draw_cells(&mut self.canvas, at, 14.0, |column| {
            let shares = columns.iter().map(|(limiter, bins)| (*limiter, bins[column].per_s));
            let most =
                shares.filter(|(_, share)| *share > 0.0).max_by(|one, other| one.1.total_cmp(&other.1));
            most.map_or((GRID, 0.0), |(limiter, _)| (colour_of(limiter), 1.0))
        });
        let shares = record.limited.iter().filter(|(limiter, _)| *limiter != LimitingStage::Unknown);
        for (nth, (limiter, bins)) in shares.enumerate() {
            let share = 100.0 * bins.total() / self.end_s;
            let words = format!("{} {share:.0} %", limiter.name());
            draw_legend_key(
                &mut self.canvas,
                at.moved(170.0 * nth as f64, 34.0),
                &words,
                colour_of(*limiter),
            );
        }
    }
}

/// Draws a row for each label: the higher its rate, relative to the highest of all, the darker.
pub fn plot_heat_map(rows: &[(&str, &TimeBins)], end_s: f64, label: &str) -> String {
    let columns: Vec<Vec<TimeBin>> = rows.iter().map(|(_, bins)| bins.in_columns(end_s, COLUMNS)).collect();
    let highest = columns.iter().flatten().map(|bin| bin.per_s).fold(0.0, f64::max);
    let mut canvas = SvgCanvas::default();
    for (nth, ((name, _), bins)) in rows.iter().zip(&columns).enumerate() {
        let at = CanvasPoint { x: LEFT, y: 8.0 + 18.0 * nth as f64 };
        canvas.text(CanvasPoint { x: 4.0, y: at.y + 11.0 }, TEXT, &shortened(name));
        draw_cells(&mut canvas, at, 15.0, |column| {
            let part = if highest > 0.0 { bins[column].per_s / highest } else { 0.0 };
            (HEAT, (part * SHADES).ceil() / SHADES)
        });
    }
    draw_time_axis(&mut canvas, end_s, 8.0, 18.0 * rows.len() as f64);
    let darkest = format!("darkest: {}", rate(highest as u64));
    canvas.text(CanvasPoint { x: LEFT, y: 8.0 + 18.0 * rows.len() as f64 + 38.0 }, TEXT, &darkest);
    canvas.inline(8.0, label)
}

/// Draws a row of cells; neighbours of equal look are merged.
fn draw_cells(
    canvas: &mut SvgCanvas,
    at: CanvasPoint,
    height: f64,
    look: impl Fn(usize) -> (&'static str, f64),
) {
    let width = WIDTH / COLUMNS as f64;
    let columns: Vec<usize> = (0..COLUMNS).collect();
    for run in columns.chunk_by(|one, next| look(*one) == look(*next)) {
        let (fill, opacity) = look(run[0]);
        let at = at.moved(run[0] as f64 * width, 0.0);
        if opacity > 0.0 {
            canvas.rectangle(
                CanvasArea { at, width: width * run.len() as f64, height },
                SvgBoxStyle::filled(fill, opacity, 0.0),
                "",
            );
        }
    }
}

/// Draws the number of files of each size.
pub fn plot_file_sizes(counts: &[u64]) -> String {
    let most = counts.iter().copied().max().unwrap_or(0).max(1) as f64;
    let first = counts.iter().position(|&count| count > 0).unwrap_or(0);
    let shown = &counts[first.min(counts.len())..];
    let step = (WIDTH / shown.len().max(8) as f64).min(70.0);
    let mut canvas = SvgCanvas::default();
    let bottom = 20.0 + 140.0;
    for (nth, &count) in shown.iter().enumerate() {
        let height = 140.0 * count as f64 / most;
        let at = CanvasPoint { x: 20.0 + step * nth as f64, y: bottom - height };
        let hint = format!("{}: {count} files", class_name(first + nth));
        canvas.rectangle(
            CanvasArea { at, width: step - 4.0, height: height.max(0.5) },
            SvgBoxStyle::filled(HEAT, 1.0, 2.0),
            &hint,
        );
        let middle = CanvasPoint { x: at.x + step / 2.0 - 2.0, y: bottom + 16.0 };
        // Labels that would overlap are left out: every other, or three of four.
        if step >= 56.0 || nth.is_multiple_of(2) && step >= 28.0 || nth.is_multiple_of(4) {
            canvas.text(middle, MIDDLE, &class_lower_bound(first + nth));
        }
        if count > 0 && step >= 28.0 {
            canvas.text(CanvasPoint { y: at.y - 4.0, ..middle }, MIDDLE, &short_count(count));
        }
    }
    let line = CanvasPoint { x: 20.0, y: bottom };
    canvas.line(&[line, line.moved(step * shown.len() as f64, 0.0)], GRID, 1.0);
    canvas.text(line.moved(0.0, 36.0), TEXT, "from this size up to twice as much");
    canvas.inline(8.0, "number of files by size")
}

/// Formats a class as `4.0 KiB to 8.0 KiB`.
pub fn class_name(class: usize) -> String {
    match class {
        0 => "empty".into(),
        class => format!("{} to {}", class_lower_bound(class), class_lower_bound(class + 1)),
    }
}

/// Returns the least size of a class.
fn class_lower_bound(class: usize) -> String {
    match class {
        0 => "0".into(),
        class => size::format_power_of_two(1u128 << (class - 1)),
    }
}

/// Formats a count as `12`, `34k` or `5M`.
fn short_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// Draws vertical lines at round times, with labels.
fn draw_time_axis(canvas: &mut SvgCanvas, end_s: f64, top: f64, height: f64) {
    const STEPS_S: [u32; 15] = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1_200, 1_800, 3_600, 7_200, 21_600];
    let step_s = STEPS_S.into_iter().map(f64::from).find(|step_s| end_s / step_s <= 10.0).unwrap_or(86_400.0);
    let mut at_s = 0.0;
    while at_s <= end_s {
        let place = CanvasPoint { x: LEFT + WIDTH * at_s / end_s, y: top };
        canvas.line(&[place, place.moved(0.0, height)], GRID, 0.5);
        canvas.text(place.moved(0.0, height + 16.0), MIDDLE, &clock(at_s as u64));
        at_s += step_s;
    }
}

fn draw_legend_key(canvas: &mut SvgCanvas, at: CanvasPoint, words: &str, colour: &str) {
    let area = CanvasArea { at: at.moved(0.0, -10.0), width: 11.0, height: 11.0 };
    canvas.rectangle(area, SvgBoxStyle::filled(colour, 1.0, 2.0), "");
    canvas.text(at.moved(17.0, 0.0), TEXT, words);
}

/// Shortens a name to the room next to a strip.
fn shortened(name: &str) -> String {
    const MOST: usize = 14;
    match name.chars().count() {
        0..=MOST => name.to_owned(),
        count => format!("…{}", name.chars().skip(count + 1 - MOST).collect::<String>()),
    }
}

/// Returns a round number of bytes that is not less; its quarters are round too.
fn round_up(rate: f64) -> f64 {
    let mut unit = 1.0;
    while rate >= 1_024.0 * unit {
        unit *= 1_024.0;
    }
    let steps = [1.0, 2.0, 4.0, 8.0, 12.0, 20.0, 40.0, 80.0, 120.0, 200.0, 400.0, 800.0, 1_024.0];
    steps.into_iter().map(|step| step * unit).find(|top| *top >= rate).unwrap_or(1_024.0 * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_round_and_not_below() {
        for (rate, top) in
            [(0.0, 1.0), (5.0, 8.0), (1_025.0, 2_048.0), (300.0 * 1_048_576.0, 400.0 * 1_048_576.0)]
        {
            assert_eq!(round_up(rate), top, "{rate}");
        }
    }

    #[test]
    fn every_class_has_a_name() {
        assert_eq!([0, 1, 13].map(class_name), ["empty", "1 B to 2 B", "4 KiB to 8 KiB"]);
        assert_eq!(class_name(64), "8 EiB to 16 EiB");
    }

    #[test]
    fn a_strip_is_dark_where_much_came() {
        let mut bins = TimeBins::default();
        bins.add(0.0, 60.0, 600.0);
        bins.add(60.0, 120.0, 60.0);
        let picture = plot_heat_map(&[("a<b", &bins)], 120.0, "targets");
        assert!(picture.contains("a&lt;b") && picture.contains("darkest: 10 B/s"), "{picture}");
        // There are two runs of cells.
        assert_eq!(picture.matches("<rect ").count(), 2, "{picture}");
        assert!(picture.contains("fill-opacity=\"1\"") && picture.contains("fill-opacity=\"0.1\""));
    }

    #[test]
    fn nothing_is_no_reason_to_fail() {
        assert!(plot_rates(&HtmlReportData::default(), 1.0).starts_with("<svg "));
        assert!(
            plot_file_sizes(&[]).starts_with("<svg ") && plot_heat_map(&[], 1.0, "none").starts_with("<svg ")
        );
    }
}
