//! Markup that grows, and what others chose made harmless for it.

use std::fmt::Write;

use carrack_model::escape;

use crate::trouble::tame;
use crate::views::canvas::{escaped, escaped_markup};
use crate::views::quantity::grouped;

/// Text that grows.
#[derive(Default)]
pub struct Html(pub String);

impl Html {
    /// Markup as it is.
    pub fn raw(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// A heading.
    pub fn heading(&mut self, words: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(words));
    }

    /// A paragraph.
    pub fn paragraph(&mut self, words: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escaped(words));
    }

    /// An item of a list.
    pub fn item(&mut self, text: &str) {
        let _ = writeln!(self.0, "<li>{}</li>", words(text));
    }

    /// A table with these headings.
    pub fn table(&mut self, columns: &[&str], rows: impl FnOnce(&mut Html)) {
        self.raw("<table>\n<tr>");
        columns.iter().for_each(|column| self.raw(&format!("<th>{column}</th>")));
        self.raw("</tr>\n");
        rows(self);
        self.raw("</table>\n");
    }

    /// Cells are markup.
    pub fn row(&mut self, cells: &[&str]) {
        self.raw("<tr>");
        cells.iter().for_each(|cell| self.raw(&format!("<td>{cell}</td>")));
        self.raw("</tr>\n");
    }

    /// What a list leaves out, if it leaves out anything.
    pub fn rest(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.paragraph(&format!("… and {} more {what}.", grouped(count)));
        }
    }
}

/// Words that are told as they are: what another machine sent in them was escaped when it came.
pub fn words(text: &str) -> String {
    escaped_markup(&tame(text))
}

/// A path's bytes as markup.
pub fn path(bytes: &[u8]) -> String {
    escaped_markup(&escape(bytes))
}
