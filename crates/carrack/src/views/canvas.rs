//! Scalable vector graphics (SVG 1.1) as text: boxes, lines and words at points, in pixels.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use carrack_model::escape;

use crate::user_error::UserError;

pub const INK: &str = "#222222";

/// The lines of a grid.
pub const GRID: &str = "#c8c8c8";

// Colours that colour-blind people can tell apart (after Okabe and Ito).
pub const BLUE: &str = "#0072b2";
pub const ORANGE: &str = "#d55e00";

pub const TEXT: SvgTextFont<'static> =
    SvgTextFont { size: 12.0, is_bold: false, colour: INK, anchor: TextAnchor::Start };
pub const MIDDLE: SvgTextFont<'static> = SvgTextFont { anchor: TextAnchor::Middle, ..TEXT };
pub const TITLE: SvgTextFont<'static> = SvgTextFont { size: 17.0, is_bold: true, ..TEXT };

/// A point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanvasPoint {
    pub x: f64,
    pub y: f64,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanvasArea {
    pub at: CanvasPoint,
    pub width: f64,
    pub height: f64,
}

/// The appearance of a box.
#[derive(Clone, Copy, Debug)]
pub struct SvgBoxStyle<'a> {
    pub fill: &'a str,
    /// Opacity of the fill, 0 to 1.
    pub opacity: f64,
    pub stroke: &'a str,
    pub stroke_width: f64,
    pub radius: f64,
}

/// The alignment of a text to its point.
#[derive(Clone, Copy, Debug)]
pub enum TextAnchor {
    Start,
    Middle,
}

/// The appearance of a text.
#[derive(Clone, Copy, Debug)]
pub struct SvgTextFont<'a> {
    pub size: f64,
    pub is_bold: bool,
    pub colour: &'a str,
    pub anchor: TextAnchor,
}

/// A picture that grows with its contents.
#[derive(Debug, Default)]
pub struct SvgCanvas {
    body: String,
    width: f64,
    height: f64,
}

impl CanvasPoint {
    pub fn moved(self, x: f64, y: f64) -> CanvasPoint {
        CanvasPoint { x: self.x + x, y: self.y + y }
    }
}

impl SvgBoxStyle<'_> {
    /// Returns a look without a frame.
    pub fn filled(fill: &str, opacity: f64, radius: f64) -> SvgBoxStyle<'_> {
        SvgBoxStyle { fill, opacity, stroke: "none", stroke_width: 0.0, radius }
    }
}

impl SvgCanvas {
    /// Draws a box; `hint` is shown while the pointer is over it.
    pub fn rectangle(&mut self, area: CanvasArea, look: SvgBoxStyle<'_>, hint: &str) {
        let CanvasArea { at: CanvasPoint { x, y }, width, height } = area;
        let SvgBoxStyle { fill, opacity, stroke, stroke_width, radius } = look;
        let line = format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"{radius}\" fill=\"{fill}\" \
             fill-opacity=\"{opacity}\" stroke=\"{stroke}\" stroke-width=\"{stroke_width}\""
        );
        self.body.push_str(&line);
        match hint {
            "" => self.body.push_str("/>\n"),
            hint => self.push(format_args!("><title>{}</title></rect>\n", escaped(hint))),
        }
        self.extend_to(x + width, y + height);
    }

    /// Draws a line from point to point.
    pub fn line(&mut self, places: &[CanvasPoint], colour: &str, width: f64) {
        let points = self.points(places);
        self.push(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>\n"
        ));
    }

    /// Fills the polygon between points, `opacity` from 0 to 1.
    pub fn polygon(&mut self, places: &[CanvasPoint], fill: &str, opacity: f64) {
        let points = self.points(places);
        self.push(format_args!(
            "<polygon points=\"{points}\" fill=\"{fill}\" fill-opacity=\"{opacity}\"/>\n"
        ));
    }

    fn points(&mut self, places: &[CanvasPoint]) -> String {
        places.iter().for_each(|place| self.extend_to(place.x, place.y));
        let shown: Vec<String> = places.iter().map(|CanvasPoint { x, y }| format!("{x:.1},{y:.1}")).collect();
        shown.join(" ")
    }

    /// Writes a text whose base line begins (or has its middle) at a point.
    pub fn text(&mut self, at: CanvasPoint, font: SvgTextFont<'_>, text: &str) {
        let weight = if font.is_bold { " font-weight=\"bold\"" } else { "" };
        let anchor = match font.anchor {
            TextAnchor::Start => "",
            TextAnchor::Middle => " text-anchor=\"middle\"",
        };
        let (CanvasPoint { x, y }, SvgTextFont { size, colour, .. }) = (at, font);
        self.push(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\"{weight}{anchor}>{}</text>\n",
            escaped(text)
        ));
        match font.anchor {
            TextAnchor::Start => self.extend_to(x + width_of(text, size), y + size / 3.0),
            TextAnchor::Middle => self.extend_to(x + width_of(text, size) / 2.0, y + size / 3.0),
        }
    }

    /// Returns the picture, with a margin to the right and below.
    pub fn finish(self, margin: f64) -> String {
        let (width, height) = ((self.width + margin).ceil(), (self.height + margin).ceil());
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" \
             height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }

    /// Returns the picture as a part of a page: as wide as there is room, without a background, its colours
    /// the page's if they are variables. Screen readers read `label` in its place.
    pub fn inline(self, margin: f64, label: &str) -> String {
        let (width, height) = ((self.width + margin).ceil(), (self.height + margin).ceil());
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            escaped(label),
            self.body
        )
    }

    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string never fails.
        let _ = self.body.write_fmt(text);
    }

    fn extend_to(&mut self, x: f64, y: f64) {
        self.width = self.width.max(x);
        self.height = self.height.max(y);
    }
}

/// Returns an estimated width: the font is unknown here. A character of a sans serif is a good half as wide
/// as high.
pub fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.6
}

/// Escapes control characters, which XML does not allow, as for a terminal; then XML's own.
pub fn escaped(text: &str) -> String {
    escaped_markup(&escape(text.as_bytes()))
}

/// Escapes only XML's own characters.
pub fn escaped_markup(text: &str) -> String {
    let mut safe = String::new();
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Writes a picture to a file.
pub fn write(picture: &str, path: &Path) -> Result<(), UserError> {
    let shown = escape(path.as_os_str().as_encoded_bytes());
    fs::write(path, picture).map_err(|error| UserError::new(format!("{shown}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_holds_everything_that_is_on_it() {
        let mut canvas = SvgCanvas::default();
        let look = SvgBoxStyle { fill: "#fff", opacity: 1.0, stroke: "#000", stroke_width: 1.0, radius: 3.0 };
        canvas.rectangle(
            CanvasArea { at: CanvasPoint { x: 10.0, y: 20.0 }, width: 30.0, height: 40.0 },
            look,
            "a\"<\u{1}",
        );
        let font = SvgTextFont { size: 10.0, is_bold: true, colour: "#123", anchor: TextAnchor::Start };
        canvas.text(CanvasPoint { x: 30.0, y: 10.0 }, font, "a & b");
        canvas.line(&[CanvasPoint { x: 1.0, y: 2.0 }, CanvasPoint { x: 3.04, y: 4.0 }], "#000", 2.0);
        let picture = canvas.finish(5.0);
        assert!(picture.contains("<polyline points=\"1.0,2.0 3.0,4.0\" fill=\"none\""), "{picture}");
        assert!(picture.contains("width=\"65\" height=\"65\""), "{picture}");
        assert!(picture.contains("<title>a&quot;&lt;\\u{1}</title>"), "{picture}");
        assert!(picture.contains(" font-weight=\"bold\">a &amp; b</text>"), "{picture}");
    }
}
