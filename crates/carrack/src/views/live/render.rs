//! The live view on a terminal of any size. Pure: a [`LiveViewTransfer`] becomes cells of a buffer.
//!
//! The most important parts come first; parts without room are left out. Shades and marks repeat the meaning
//! of colours.

use carrack_model::{
    FailureSide, LaneReport, LargeFileProgress, LimitingStage, StageFill, TargetReport, TransferProgress,
    escape,
};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget;

use super::live_state::{EndTargets, LiveViewTransfer, RateGauge, RatedReport};
use crate::size;
use crate::views::quantity::{clock, group_digits, rate};
use crate::views::report::progress_text;

/// Shades from an idle target to the busiest.
const SHADES: [char; 5] = ['·', '░', '▒', '▓', '█'];
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of a stage's name and of its rate.
const NAME: usize = 10;
const RATE: usize = 13;

/// Most rows of the targets of one end with their names.
const NAME_ROWS_MAX: usize = 3;

/// Rows of the stages and the queues between them.
const STAGE_ROWS: usize = 8;

impl Widget for &LiveViewTransfer {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        let foot = usize::from(height > 4);
        let mut rows = self.head(width);
        // The queues leave room for the rest only where a few rows of the rest fit.
        let has_queues = height >= rows.len() + STAGE_ROWS + foot + 3;
        rows.extend(self.stages(width, has_queues));
        rows.truncate(height - foot);
        let rest = height - foot - rows.len();
        rows.extend(share_rows(self.panels(width), rest));
        for (y, row) in (area.y..).zip(&rows) {
            buffer.set_line(area.x, y, row, area.width);
        }
        if foot == 1 {
            buffer.set_line(area.x, area.bottom() - 1, &self.foot(), area.width);
        }
    }
}

impl LiveViewTransfer {
    fn head(&self, width: usize) -> Vec<Line<'static>> {
        let time = clock(self.elapsed.as_secs());
        let title = truncate_start(&self.title, width.saturating_sub(time.len() + 2));
        let gap = width.saturating_sub(title.chars().count() + time.len());
        vec![
            Line::from(vec![Span::styled(title, bold()), Span::raw(" ".repeat(gap)), Span::raw(time)]),
            Line::from(bar(done_part(&self.progress), width)).style(Style::new().fg(Color::Green)),
            Line::from(progress_text(&self.progress, &self.pace)),
        ]
    }

    /// Returns the stages in the order in which an object passes them, with the queues between them if there
    /// is room.
    fn stages(&self, width: usize, has_queues: bool) -> Vec<Line<'static>> {
        let TransferProgress { limiter, to_read, to_send, to_write, .. } = self.progress;
        let found = group_digits(self.progress.entries_found);
        let scan = if self.progress.scan_done { "all found" } else { "found so far" };
        let scan_row = Line::from(format!(
            "{}{:<NAME$}{found} entries, {scan}",
            mark(limiter == LimitingStage::Scan),
            "scan"
        ));
        let title = format!("stages  {}", self.way);
        let mut rows = Vec::new();
        rows.extend(has_queues.then(|| heading(&title)));
        rows.push(scan_row.style(emphasis_style(limiter == LimitingStage::Scan)));
        for (what, fill, stage, name, meter) in [
            ("to read", to_read, LimitingStage::SourceStorage, "read", &self.read),
            ("to send", to_send, LimitingStage::Network, "network", &self.sent),
            ("to write", to_write, LimitingStage::SinkStorage, "write", &self.written),
        ] {
            rows.extend(has_queues.then(|| queue_row(what, fill, width)));
            rows.push(stage_row(name, meter, limiter == stage, width));
        }
        rows
    }

    /// Returns the other panels, the most important first.
    fn panels(&self, width: usize) -> Vec<Vec<Line<'static>>> {
        let targets = self.ends.iter().map(|end| target_rows(end, width));
        let files = self.files.iter().map(|file| file_row(file, width));
        let lanes = self.lanes.iter().enumerate().map(|(number, lane)| lane_row(number, lane));
        let said = self.messages.iter().rev().map(|text| Line::from(format!("  {text}")));
        let others: [(&str, Vec<Line<'static>>); 3] = [
            ("large files on their way, the longest first", files.collect()),
            ("lanes of the source", lanes.collect()),
            ("said, the latest first", said.collect()),
        ];
        let others = others.into_iter().map(|(title, rows)| {
            if rows.is_empty() { rows } else { [heading(title)].into_iter().chain(rows).collect() }
        });
        targets.chain(others).collect()
    }

    fn foot(&self) -> Line<'static> {
        let words = if self.is_ending {
            "ending: what is complete stays (again: at once)"
        } else {
            "q ends; what is complete stays, and the same command goes on"
        };
        Line::from(words).style(Style::new().add_modifier(Modifier::DIM))
    }
}

/// Gives each panel a heading and a row as long as there are any, then one row after the other to all panels
/// that have more to show.
fn share_rows(panels: Vec<Vec<Line<'static>>>, mut rows: usize) -> Vec<Line<'static>> {
    let mut parts = vec![0; panels.len()];
    for (part, panel) in parts.iter_mut().zip(&panels) {
        if rows >= 2 && panel.len() >= 2 {
            *part = 2;
            rows -= 2;
        }
    }
    while rows > 0 && parts.iter_mut().zip(&panels).any(|it| has_more(&it)) {
        for (part, _) in parts.iter_mut().zip(&panels).filter(has_more).take(rows) {
            *part += 1;
            rows -= 1;
        }
    }
    panels.into_iter().zip(parts).flat_map(|(panel, part)| panel.into_iter().take(part)).collect()
}

/// Returns true if a panel that is shown has more rows than these.
fn has_more((part, panel): &(&mut usize, &Vec<Line<'static>>)) -> bool {
    (2..panel.len()).contains(&**part)
}

fn stage_row(name: &str, meter: &RateGauge, limits: bool, width: usize) -> Line<'static> {
    let rate = rate(meter.per_s as u64);
    let room = width.saturating_sub(2 + NAME + RATE + 10);
    let limit = if limits { "  limits" } else { "" };
    Line::from(format!("{}{name:<NAME$}{rate:<RATE$} {}{limit}", mark(limits), curve(meter, room)))
        .style(emphasis_style(limits))
}

fn queue_row(what: &str, fill: StageFill, width: usize) -> Line<'static> {
    let dim = Style::new().add_modifier(Modifier::DIM);
    if fill.room == 0 {
        return Line::from(format!("    {what:<9} not told")).style(dim);
    }
    let part = fill.waiting as f64 / fill.room as f64;
    let numbers = format!("{} of {}", group_digits(fill.waiting), group_digits(fill.room));
    let room = width.saturating_sub(34).min(30);
    Line::from(format!("    {what:<9} {} {numbers}", bar(part, room))).style(dim)
}

/// Returns a cell for each target, with its name where that takes few rows.
fn target_rows(end: &EndTargets, width: usize) -> Vec<Line<'static>> {
    let highest = end.targets.iter().map(|target| target.meter.per_s).fold(0.0, f64::max);
    let place = if end.side == FailureSide::Source { "source" } else { "sink" };
    let avoided = end.targets.iter().filter(|target| target.report.is_avoided).count();
    let avoided = if avoided > 0 { format!(", ! avoided: {avoided}") } else { String::new() };
    let title = format!("{place} targets: {}, █ {}{avoided}", end.targets.len(), rate(highest as u64));
    let names: Vec<String> =
        end.targets.iter().map(|target| escape(target.report.label.as_bytes())).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let room = width.saturating_sub(2);
    let has_names = names.len().div_ceil((room / (longest + 4)).max(1)) <= NAME_ROWS_MAX;
    let in_a_row = if has_names { room / (longest + 4) } else { room }.max(1);
    let spans: Vec<Span<'static>> = end
        .targets
        .iter()
        .zip(&names)
        .map(|(target, name)| match (cell(target, highest), has_names) {
            ((shade, style), true) => Span::styled(format!("{shade} {name:<longest$}  "), style),
            ((shade, style), false) => Span::styled(shade, style),
        })
        .collect();
    let rows = spans.chunks(in_a_row).map(|row| {
        let inset = [Span::raw("  ")].into_iter();
        Line::from(inset.chain(row.iter().cloned()).collect::<Vec<_>>())
    });
    [heading(&title)].into_iter().chain(rows).collect()
}

fn cell(target: &RatedReport<TargetReport>, highest: f64) -> (String, Style) {
    if target.report.is_avoided {
        return ("!".into(), Style::new().fg(Color::Red).add_modifier(Modifier::BOLD));
    }
    let part = if highest > 0.0 { target.meter.per_s / highest } else { 0.0 };
    let step = (part * (SHADES.len() - 1) as f64).ceil() as usize;
    let colour = [Color::DarkGray, Color::Blue, Color::Cyan, Color::Green, Color::Yellow][step.min(4)];
    (SHADES[step.min(4)].to_string(), Style::new().fg(colour))
}

fn lane_row(number: usize, lane: &RatedReport<LaneReport>) -> Line<'static> {
    let StageFill { waiting, room } = lane.report.to_send;
    let rate = rate(lane.meter.per_s as u64);
    Line::from(format!(
        "  {number}  {rate:<RATE$} to send {waiting} of {room}, threads that read: {}",
        lane.report.readers
    ))
}

fn file_row(file: &LargeFileProgress, width: usize) -> Line<'static> {
    let percent = (file.bytes_done.saturating_mul(100)).checked_div(file.bytes).unwrap_or(0);
    let time = clock(file.open_ms / 1_000);
    let size = size::format_size(file.bytes);
    let path = truncate_start(&escape(&file.path), width.saturating_sub(29));
    Line::from(format!("  {time:>7} {percent:>3} % {size:>11}  {path}"))
}

fn done_part(progress: &TransferProgress) -> f64 {
    let (done, found) = match progress.bytes_found {
        0 => (progress.entries_done, progress.entries_found),
        found => (progress.bytes_done, found),
    };
    if found == 0 { 0.0 } else { done as f64 / found as f64 }
}

fn bar(part: f64, width: usize) -> String {
    let full = (part.clamp(0.0, 1.0) * width as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(width - full))
}

/// Draws the latest rates, relative to the highest.
fn curve(meter: &RateGauge, width: usize) -> String {
    let shown = meter.past.iter().skip(meter.past.len().saturating_sub(width));
    let highest = shown.clone().copied().max().unwrap_or(0).max(1) as f64;
    let top = HEIGHTS.len() - 1;
    shown.map(|rate| HEIGHTS[((*rate as f64 / highest * top as f64).round() as usize).min(top)]).collect()
}

fn heading(words: &str) -> Line<'static> {
    Line::from(words.to_owned()).style(bold().fg(Color::Cyan))
}

fn mark(limits: bool) -> &'static str {
    if limits { "▶ " } else { "  " }
}

fn emphasis_style(is_loud: bool) -> Style {
    if is_loud { bold().fg(Color::Yellow) } else { Style::new() }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

/// Cuts a text at its beginning, since the end says more.
fn truncate_start(text: &str, width: usize) -> String {
    match text.chars().count() {
        count if count <= width => text.to_owned(),
        _ if width == 0 => String::new(),
        count => format!("…{}", text.chars().skip(count + 1 - width).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::live_state::tests::busy;
    use super::*;

    fn shown(watch: &LiveViewTransfer, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| frame.render_widget(watch, frame.area())).unwrap();
        let buffer = terminal.backend().buffer();
        (0..height)
            .map(|y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_usual_terminal_has_everything() {
        let rows = shown(&busy(), 80, 24);
        assert!(
            rows[0].starts_with("carrack cp  tree → host:data") && rows[0].ends_with("0:03"),
            "{rows:#?}"
        );
        assert_eq!(rows[1].chars().filter(|c| *c == '█').count(), 24, "{rows:#?}");
        assert!(rows[2].starts_with("300.0 MiB/1000.0 MiB, "), "{rows:#?}");
        let text = rows.join("\n");
        for words in [
            "stages  tcp × 8",
            "2,000 entries, all found",
            "16,384 of 32,768",
            "9 of 10",
            "▶ network",
            "source targets: 24, █ ",
            "! avoided: 1",
            "1:01  25 %",
            "tree/run0/big\\u{7}.dat",
            "lanes of the source",
            "to send 4 of 5, threads that read: 4",
            "failed: a\\u{1b}: gone",
            "q ends",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert_eq!(rows.iter().filter(|row| row.ends_with("limits")).count(), 1, "{text}");
    }

    #[test]
    fn a_small_one_has_what_matters() {
        let rows = shown(&busy(), 40, 10);
        let text = rows.join("\n");
        for words in ["0:03", "300.0 MiB/", "scan", "read", "▶ network", "write", "source targets", "q ends"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("of 32,768"), "{text}");
    }

    #[test]
    fn a_large_one_has_all_rows() {
        let text = shown(&busy(), 200, 60).join("\n");
        assert_eq!(text.matches("big\\u{7}.dat").count(), 10, "{text}");
        assert!(text.contains("OST0023") && text.contains("! OST0003"), "{text}");
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (2, 3), (10, 5), (300, 2)] {
            for watch in [busy(), LiveViewTransfer::default()] {
                assert_eq!(shown(&watch, width, height).len(), usize::from(height));
            }
        }
    }

    #[test]
    fn an_older_source_tells_no_queues() {
        let mut watch = busy();
        watch.progress.to_send = StageFill::default();
        assert!(shown(&watch, 80, 24).iter().any(|row| row.contains("to send   not told")));
    }
}
