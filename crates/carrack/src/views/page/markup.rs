//! Markup that is being written, and the escapes that make text from elsewhere harmless.

use std::fmt::Write;

use carrack_model::escape;

use crate::user_error::escape_control_characters;
use crate::views::canvas::{escaped, escaped_markup};
use crate::views::quantity::group_digits;

/// Markup that is being written.
#[derive(Default)]
pub struct HtmlMarkupBuilder(pub String);

impl HtmlMarkupBuilder {
    /// Adds markup unescaped.
    pub fn raw(&mut self, markup: &str) {
        self.0.push_str(markup);
    }

    /// Adds a heading.
    pub fn heading(&mut self, words: &str) {
        // Writing to a string never fails.
        let _ = writeln!(self.0, "<h2>{}</h2>", escaped(words));
    }

    /// Adds a paragraph.
    pub fn paragraph(&mut self, words: &str) {
        let _ = writeln!(self.0, "<p>{}</p>", escaped(words));
    }

    /// Adds an item of a list.
    pub fn item(&mut self, text: &str) {
        let _ = writeln!(self.0, "<li>{}</li>", escaped_text(text));
    }

    /// Adds a table with these headings.
    pub fn table(&mut self, columns: &[&str], rows: impl FnOnce(&mut HtmlMarkupBuilder)) {
        self.raw("<table>\n<tr>");
        columns.iter().for_each(|column| self.raw(&format!("<th>{column}</th>")));
        self.raw("</tr>\n");
        rows(self);
        self.raw("</table>\n");
    }

    /// Adds a row, whose cells are markup.
    pub fn row(&mut self, cells: &[&str]) {
        self.raw("<tr>");
        cells.iter().for_each(|cell| self.raw(&format!("<td>{cell}</td>")));
        self.raw("</tr>\n");
    }

    /// Adds the number of entries that a list leaves out, if any.
    pub fn omitted_count(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.paragraph(&format!("… and {} more {what}.", group_digits(count)));
        }
    }
}

/// Escapes a text as markup; parts from another machine were escaped when they came.
pub fn escaped_text(text: &str) -> String {
    escaped_markup(&escape_control_characters(text))
}

/// Escapes a path's bytes as markup.
pub fn escaped_path(bytes: &[u8]) -> String {
    escaped_markup(&escape(bytes))
}
