//! Tables and lists of facts for people: columns as wide as their contents on a terminal.
//!
//! Cells are tamed here, so that names which others chose can't drive the terminal; bytes that may be no text are escaped by the caller.

use std::fmt::Display;
use std::io::{self, Write};

use ratatui::text::Span;

use crate::trouble::tame;

/// Between columns.
const GAP: &str = "  ";

/// Columns of the labels in a list of facts.
const LABEL_WIDTH: usize = 12;

/// Rows of cells.
pub struct Table {
    /// Of each column: whether its cells end at one edge.
    is_right: Vec<bool>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A sign for each column as in format strings: `<` aligns to the left, `>` to the right.
    pub fn new(columns: &str) -> Table {
        Table { is_right: columns.chars().map(|sign| sign == '>').collect(), rows: Vec::new() }
    }

    /// With a row of headings, each behind the sign of its column.
    pub fn headed(headings: &[&str]) -> Table {
        let mut table = Table::new(&headings.iter().map(|heading| &heading[..1]).collect::<String>());
        table.rows.push(headings.iter().map(|heading| heading[1..].to_owned()).collect());
        table
    }

    /// Adds a row. One with fewer cells than columns ends with a text of any length.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(|cell| tame(&cell.to_string())).collect());
    }

    /// The lines, without spaces at their ends.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let widths: Vec<usize> = (0..self.is_right.len()).map(|column| self.width(column)).collect();
        self.rows.iter().map(move |row| {
            let cells = row.iter().zip(&widths).zip(&self.is_right).map(|((cell, width), is_right)| {
                let padding = " ".repeat(width.saturating_sub(width_of(cell)));
                if *is_right { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        })
    }

    /// Writes the lines, `indent` in front of each.
    pub fn write(&self, indent: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.lines().try_for_each(|line| writeln!(out, "{indent}{line}"))
    }

    /// The text at the end of a shorter row does not count.
    fn width(&self, column: usize) -> usize {
        let is_cell = |row: &&Vec<String>| column + 1 < row.len() || row.len() == self.is_right.len();
        self.rows.iter().filter(is_cell).map(|row| width_of(&row[column])).max().unwrap_or(0)
    }
}

/// Columns on a terminal.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Writes what is known of one thing, a line for each fact; facts without words are left out.
pub fn write_facts(facts: &[(&str, String)], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut told = facts.iter().filter(|(_, words)| !words.is_empty());
    told.try_for_each(|(label, words)| writeln!(out, "  {label:<LABEL_WIDTH$} {}", tame(words)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::output::tests::text_of;

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let mut table = Table::headed(&["<NAME", ">COUNT", "<"]);
        table.row(&[&"データ", &7, &"x"]);
        table.row(&[&"a\x1b", &123_456, &""]);
        table.row(&[&"", &"a text that is longer than its column"]);
        let lines: Vec<String> = table.lines().collect();
        let expected = [
            "NAME      COUNT",
            "データ        7  x",
            "a\\u{1b}  123456",
            "         a text that is longer than its column",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn facts_without_words_are_left_out() {
        let text = text_of(|out| write_facts(&[("from", "a\n".into()), ("to", String::new())], out));
        assert_eq!(text, "  from         a\\n\n");
    }
}
