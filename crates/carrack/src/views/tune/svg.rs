//! `carrack tune show --svg`: for each workload a row of panels, one for each setting: throughput over its
//! value, the present point marked. Values are on a scale of doublings, as the tuner tries them; the panels
//! of a row have the same rates.

use carrack_plan::tuner::{KnobCurvePoint, TunerKnob};

use super::{TuneReport, deviation, is_start_value, megabytes, record_time, size_name, throughput_text};
use crate::register::tuner_store::TunerWorkloadRecord;
use crate::views::canvas::{
    BLUE, CanvasArea, CanvasPoint, GRID, MIDDLE, ORANGE, SvgBoxStyle, SvgCanvas, SvgTextFont, TEXT, TITLE,
};

const MARGIN: f64 = 20.0;

/// Width of the labels with the rates, to the left of the first panel.
const LABELS: f64 = 95.0;

const WIDTH: f64 = 250.0;
const HEIGHT: f64 = 170.0;
const GAP: f64 = 30.0;

/// Height of the title and the names of the settings, above the panels.
const HEAD: f64 = 62.0;

/// Height of a row with its values and some room.
const ROW: f64 = HEAD + HEIGHT + 50.0;

/// Distance from a panel's edge to its first value.
const INSET: f64 = 18.0;

/// Least distance of two numbers; of nearer values only one has a number.
const NUMBER_WIDTH: f64 = 26.0;

/// Horizontal lines in a panel.
const LEVELS: i32 = 4;

const MEASURED: &str = BLUE;
const PRESENT: &str = ORANGE;

impl TuneReport {
    /// Returns the picture.
    pub fn to_svg(&self) -> String {
        let mut canvas = SvgCanvas::default();
        for (number, known) in self.known.iter().enumerate() {
            draw_row(&mut canvas, known, MARGIN + number as f64 * ROW);
        }
        draw_legend(&mut canvas, MARGIN + self.known.len() as f64 * ROW);
        canvas.finish(MARGIN)
    }
}

fn draw_row(canvas: &mut SvgCanvas, known: &TunerWorkloadRecord, top: f64) {
    let (workload, record) = (&known.workload, &known.record);
    let title = format!(
        "{} → {}, {} files: {} MB/s, found {}",
        workload.source,
        workload.sink,
        size_name(workload.size),
        throughput_text(record),
        record_time(record)
    );
    canvas.text(CanvasPoint { x: MARGIN, y: top + 14.0 }, TITLE, &title);
    let most = highest_rate(known);
    for (number, knob) in TunerKnob::ALL.into_iter().enumerate() {
        let x = MARGIN + LABELS + number as f64 * (WIDTH + GAP);
        let mut panel = KnobCurvePanel::new(canvas, known, knob, CanvasPoint { x, y: top + HEAD }, most);
        panel.draw_grid(number == 0);
        panel.draw_curve();
        panel.draw_values();
    }
}

/// Returns the rate at the upper edge: the highest point, plus the deviation of its samples.
fn highest_rate(known: &TunerWorkloadRecord) -> f64 {
    let points = TunerKnob::ALL.into_iter().flat_map(|knob| &known.record.curves[knob]);
    let upper = points.map(|point| point.bytes_per_s() + deviation(point).unwrap_or(0.0));
    let most = upper.fold(0.0, f64::max);
    if most > 0.0 { most * 1.05 } else { 1.0 }
}

/// The curve of one setting.
struct KnobCurvePanel<'a> {
    canvas: &'a mut SvgCanvas,
    known: &'a TunerWorkloadRecord,
    knob: TunerKnob,
    at: CanvasPoint,
    /// The rate at the upper edge.
    most: f64,
    /// The least and the largest value, in doublings.
    least: f64,
    largest: f64,
}

impl<'a> KnobCurvePanel<'a> {
    fn new(
        canvas: &'a mut SvgCanvas,
        known: &'a TunerWorkloadRecord,
        knob: TunerKnob,
        at: CanvasPoint,
        most: f64,
    ) -> KnobCurvePanel<'a> {
        let present = known.record.values[knob];
        let values = known.record.curves[knob].iter().map(|point| point.value);
        let (least, largest) =
            values.fold((present, present), |(least, largest), value| (least.min(value), largest.max(value)));
        KnobCurvePanel { canvas, known, knob, at, most, least: doublings(least), largest: doublings(largest) }
    }

    fn points(&self) -> &'a [KnobCurvePoint] {
        &self.known.record.curves[self.knob]
    }

    fn x(&self, value: u32) -> f64 {
        let room = WIDTH - 2.0 * INSET;
        let along = match self.largest - self.least {
            0.0 => 0.5,
            span => (doublings(value) - self.least) / span,
        };
        self.at.x + INSET + along * room
    }

    fn y(&self, rate: f64) -> f64 {
        self.at.y + (1.0 - (rate / self.most).clamp(0.0, 1.0)) * HEIGHT
    }

    fn draw_grid(&mut self, with_rates: bool) {
        let value = self.known.record.values[self.knob];
        let title = format!("{}: {value}", self.knob);
        self.canvas.text(self.at.moved(0.0, -10.0), SvgTextFont { is_bold: true, ..TEXT }, &title);
        for level in 0..=LEVELS {
            let rate = self.most * f64::from(level) / f64::from(LEVELS);
            let left = CanvasPoint { x: self.at.x, y: self.y(rate) };
            self.canvas.line(&[left, left.moved(WIDTH, 0.0)], GRID, 1.0);
            if with_rates {
                let place = CanvasPoint { x: MARGIN, y: left.y + 4.0 };
                self.canvas.text(place, TEXT, &format!("{} MB/s", megabytes(rate)));
            }
        }
    }

    fn point_at(&self, point: &KnobCurvePoint) -> CanvasPoint {
        CanvasPoint { x: self.x(point.value), y: self.y(point.bytes_per_s()) }
    }

    /// Draws a line through the current points; outdated ones are dots without it.
    fn draw_curve(&mut self) {
        let current = self.points().iter().filter(|point| point.is_current);
        let line: Vec<CanvasPoint> = current.map(|point| self.point_at(point)).collect();
        self.canvas.line(&line, MEASURED, 1.6);
        for point in self.points() {
            let is_present = is_start_value(&self.known.record, self.knob, point);
            let (colour, radius) = match (is_present, point.is_current) {
                (true, _) => (PRESENT, 6.0),
                (false, true) => (MEASURED, 4.0),
                (false, false) => (GRID, 4.0),
            };
            let at = self.point_at(point);
            if let Some(deviation) = deviation(point) {
                let ends = [point.bytes_per_s() - deviation, point.bytes_per_s() + deviation];
                let ends = ends.map(|rate| CanvasPoint { x: at.x, y: self.y(rate) });
                self.canvas.line(&ends, colour, 1.0);
            }
            draw_dot(self.canvas, at, radius, colour, &hint(self.knob, point));
        }
    }

    /// Writes the values below the panel; of values that are too near to each other, the present or the
    /// least.
    fn draw_values(&mut self) {
        let present = self.known.record.values[self.knob];
        let mut taken = vec![self.x(present)];
        self.draw_value(present, SvgTextFont { is_bold: true, colour: PRESENT, ..MIDDLE });
        for point in self.points() {
            let x = self.x(point.value);
            if taken.iter().all(|other| (x - other).abs() >= NUMBER_WIDTH) {
                taken.push(x);
                self.draw_value(point.value, MIDDLE);
            }
        }
    }

    fn draw_value(&mut self, value: u32, font: SvgTextFont<'_>) {
        let at = CanvasPoint { x: self.x(value), y: self.at.y + HEIGHT + 16.0 };
        self.canvas.text(at, font, &value.to_string());
    }
}

fn doublings(value: u32) -> f64 {
    f64::from(value.max(1)).log2()
}

fn hint(knob: TunerKnob, point: &KnobCurvePoint) -> String {
    let deviation = deviation(point).map_or_else(String::new, |it| format!(" ± {}", megabytes(it)));
    let rate = megabytes(point.bytes_per_s());
    let note = if point.is_current { "" } else { ", outdated" };
    format!("{} {knob}: {rate}{deviation} MB/s, samples: {}{note}", point.value, point.samples)
}

fn draw_dot(canvas: &mut SvgCanvas, at: CanvasPoint, radius: f64, colour: &str, hint: &str) {
    let area = CanvasArea { at: at.moved(-radius, -radius), width: 2.0 * radius, height: 2.0 * radius };
    canvas.rectangle(area, SvgBoxStyle::filled(colour, 1.0, radius), hint);
}

fn draw_legend(canvas: &mut SvgCanvas, top: f64) {
    let left = CanvasPoint { x: MARGIN + LABELS, y: top };
    for (x, radius, colour, words) in [
        (0.0, 6.0, PRESENT, "the present value"),
        (160.0, 4.0, MEASURED, "others"),
        (250.0, 4.0, GRID, "outdated: something else has changed since"),
    ] {
        draw_dot(canvas, left.moved(x, -4.0), radius, colour, "");
        canvas.text(left.moved(x + 12.0, 0.0), TEXT, words);
    }
    canvas.text(left.moved(570.0, 0.0), TEXT, "bars: the samples' standard deviation");
}

#[cfg(test)]
mod tests {
    use carrack_plan::tuner::MeanSizeClass;

    use super::super::tests::found;
    use super::*;

    fn picture(known: Vec<TunerWorkloadRecord>) -> String {
        TuneReport { known, with_curves: true }.to_svg()
    }

    #[test]
    fn each_knob_has_its_panel_with_the_present_point_marked() {
        let picture = picture(vec![found(MeanSizeClass::Large)]);
        assert!(picture.contains("a\\u{1b} → b&lt;c, large files: 190.2 MB/s"), "{picture}");
        for title in ["readers: 16<", "streams: 2<", "writers: 12<"] {
            assert!(picture.contains(title), "{title}: {picture}");
        }
        // Two present points, and one in the legend.
        assert_eq!(picture.matches("rx=\"6\" fill=\"#d55e00\"").count(), 3);
        assert_eq!(picture.matches("<title>").count(), 5);
        assert!(picture.contains("<title>4 readers: 50.0 ± 2.0 MB/s, samples: 9, outdated</title>"));
        let readers = picture.lines().find(|line| line.contains("<polyline") && line.contains(MEASURED));
        assert_eq!(readers.unwrap().matches(',').count(), 3, "what is outdated is not on the line");
    }

    #[test]
    fn everything_is_on_the_picture() {
        let mut wide = found(MeanSizeClass::Small);
        wide.record.curves.readers = (1..=256)
            .map(|value| {
                let mut point = wide.record.curves.readers[1];
                point.value = value;
                point
            })
            .collect();
        let picture = picture(vec![found(MeanSizeClass::Large), wide]);
        let places = picture.match_indices("points=\"").map(|(at, start)| &picture[at + start.len()..]);
        let places: Vec<f64> = places
            .flat_map(|rest| rest[..rest.find('"').unwrap()].split([' ', ',']))
            .filter(|number| !number.is_empty())
            .map(|number| number.parse().unwrap())
            .collect();
        let right = MARGIN + LABELS + 3.0 * WIDTH + 2.0 * GAP;
        assert!(places.iter().all(|place| (MARGIN..=right).contains(place)), "{places:?}");
        // The numbers of 256 values don't overlap.
        let row = picture.rsplit("readers: 16<").next().unwrap();
        let numbers = row.split("streams: 2<").next().unwrap().matches("text-anchor=\"middle\"").count();
        assert!((4..12).contains(&numbers), "{numbers}");
    }
}
