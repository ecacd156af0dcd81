//! `carrack forecast --svg`: the load of the last week, and the expected load of the next day with the band
//! of its usual error.

use carrack_plan::forecast::{ForecastHorizon, STEP_S};

use super::LoadForecastReport;
use crate::lifetime::format_moment;
use crate::views::canvas::{
    BLUE, CanvasArea, CanvasPoint, GRID, INK, MIDDLE, ORANGE, SvgBoxStyle, SvgCanvas, TEXT, TITLE,
};

const MARGIN: f64 = 20.0;
const DAY_S: i64 = 86_400;

/// Seconds of the past that are shown.
const PAST_S: i64 = 7 * DAY_S;

/// The area of the curves.
const PLOT: CanvasArea = CanvasArea { at: CanvasPoint { x: 110.0, y: 60.0 }, width: 860.0, height: 300.0 };

/// Horizontal lines in the area.
const LEVELS: i32 = 4;

const MEASURED: &str = BLUE;
const EXPECTED: &str = ORANGE;
const BAND_OPACITY: f64 = 0.25;

impl LoadForecastReport {
    /// Returns the picture.
    pub fn to_svg(&self) -> String {
        let mut drawing = ForecastDrawing::new(self);
        drawing.draw_title_and_legend();
        drawing.draw_grid();
        drawing.draw_measured();
        drawing.draw_expected();
        drawing.canvas.finish(MARGIN)
    }
}

struct ForecastDrawing<'a> {
    report: &'a LoadForecastReport,
    canvas: SvgCanvas,
    start_s: i64,
    end_s: i64,
    /// The load at the upper edge.
    most: f64,
    /// Usual error of the forecast.
    band: f64,
}

impl<'a> ForecastDrawing<'a> {
    fn new(report: &'a LoadForecastReport) -> ForecastDrawing<'a> {
        let start_s = report.now_s - PAST_S;
        let band = report.forecast.error(ForecastHorizon::Day).map_or(0.0, |error| error.rmse);
        let measured = report.storage.history.measured_samples().filter(|sample| sample.at_s >= start_s);
        let loads = measured.map(|sample| sample.load);
        let loads = loads.chain(report.forecast.expected.iter().map(|load| load + band));
        let most = loads.chain(report.storage.capacity).fold(0.0, f64::max);
        let most = if most > 0.0 { most * 1.05 } else { 1.0 };
        ForecastDrawing {
            report,
            canvas: SvgCanvas::default(),
            start_s,
            end_s: report.forecast.end_s(),
            most,
            band,
        }
    }

    fn point_at(&self, at_s: i64, load: f64) -> CanvasPoint {
        let along = (at_s - self.start_s) as f64 / (self.end_s - self.start_s) as f64;
        let up = (load / self.most).clamp(0.0, 1.0);
        PLOT.at.moved(along * PLOT.width, (1.0 - up) * PLOT.height)
    }

    fn draw_title_and_legend(&mut self) {
        let corner = CanvasPoint { x: MARGIN, y: MARGIN };
        let title = format!("{}: load, measured and expected", self.report.name);
        self.canvas.text(corner.moved(0.0, 14.0), TITLE, &title);
        let below = CanvasPoint { x: PLOT.at.x, y: PLOT.at.y + PLOT.height + 50.0 };
        let band = self.report.unit.format_load(self.band);
        let method = self.report.forecast.far.name();
        for (x, colour, words) in [
            (0.0, MEASURED, "measured".to_owned()),
            (
                120.0,
                EXPECTED,
                format!("expected by {method}; the band is {band} up and down (RMSE over a day)"),
            ),
        ] {
            let area = CanvasArea { at: below.moved(x, -9.0), width: 10.0, height: 10.0 };
            self.canvas.rectangle(area, SvgBoxStyle::filled(colour, 1.0, 0.0), "");
            self.canvas.text(below.moved(x + 16.0, 0.0), TEXT, &words);
        }
    }

    fn draw_grid(&mut self) {
        for level in 0..=LEVELS {
            let load = self.most * f64::from(level) / f64::from(LEVELS);
            let (left, right) = (self.point_at(self.start_s, load), self.point_at(self.end_s, load));
            self.canvas.line(&[left, right], GRID, 1.0);
            let words = self.report.unit.format_load(load);
            self.canvas.text(CanvasPoint { x: MARGIN, y: left.y + 4.0 }, TEXT, &words);
        }
        let first_day = self.start_s.div_euclid(DAY_S) + 1;
        for day_s in (first_day * DAY_S..self.end_s).step_by(DAY_S as usize) {
            let (bottom, top) = (self.point_at(day_s, 0.0), self.point_at(day_s, self.most));
            self.canvas.line(&[bottom, top], GRID, 1.0);
            // The month and the day of 2026-01-04T…
            let date = format_moment(day_s);
            self.canvas.text(bottom.moved(0.0, 16.0), MIDDLE, date.get(5..10).unwrap_or_default());
        }
        if let Some(capacity) = self.report.storage.capacity {
            let (left, right) = (self.point_at(self.start_s, capacity), self.point_at(self.end_s, capacity));
            self.canvas.line(&[left, right], INK, 1.0);
            self.canvas.text(left.moved(4.0, -4.0), TEXT, "what it can bear");
        }
        let now_s = self.report.now_s;
        let (bottom, top) = (self.point_at(now_s, 0.0), self.point_at(now_s, self.most));
        self.canvas.line(&[bottom, top], INK, 1.0);
        self.canvas.text(top.moved(0.0, -5.0), MIDDLE, "now");
    }

    /// Draws a line for each time without gaps.
    fn draw_measured(&mut self) {
        let samples: Vec<_> = self
            .report
            .storage
            .history
            .measured_samples()
            .filter(|sample| sample.at_s >= self.start_s)
            .collect();
        for run in samples.chunk_by(|one, next| next.at_s - one.at_s <= STEP_S) {
            let places: Vec<CanvasPoint> =
                run.iter().map(|sample| self.point_at(sample.at_s + STEP_S / 2, sample.load)).collect();
            self.canvas.line(&places, MEASURED, 1.2);
        }
    }

    /// Returns the line of the expected load, shifted by `off`.
    fn expected_points(&self, off: f64) -> Vec<CanvasPoint> {
        let forecast = &self.report.forecast;
        let steps = forecast.expected.iter().zip(0..);
        steps
            .map(|(load, step)| self.point_at(forecast.start_s + step * STEP_S + STEP_S / 2, load + off))
            .collect()
    }

    fn draw_expected(&mut self) {
        let [upper, lower, middle] = [self.band, -self.band, 0.0].map(|off| self.expected_points(off));
        let around: Vec<CanvasPoint> = upper.into_iter().chain(lower.into_iter().rev()).collect();
        self.canvas.polygon(&around, EXPECTED, BAND_OPACITY);
        self.canvas.line(&middle, EXPECTED, 1.6);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::waves;

    #[test]
    fn both_curves_and_the_band_are_on_it() {
        let mut report = waves();
        report.name = "a<b".into();
        let picture = report.to_svg();
        let xml = picture.matches("<polyline ").count();
        assert!(picture.starts_with("<?xml") && picture.contains("a&lt;b: load"), "{picture}");
        assert_eq!(picture.matches("<polygon ").count(), 1);
        // Five levels, eight days, the capacity, now, and the two curves.
        assert_eq!(xml, 5 + 8 + 1 + 1 + 2);
        let measured =
            picture.lines().find(|line| line.contains("#0072b2") && line.contains("polyline")).unwrap();
        assert!(measured.matches(',').count() > 2000, "a week has 2,016 slots");
    }
}
