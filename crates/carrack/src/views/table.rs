//! Tables and lists of facts for people: columns as wide as their contents on a terminal.
//!
//! Cells are tamed here, so that names from elsewhere can't drive the terminal; the caller escapes bytes that
//! may be no text.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use carrack_options::colour::{self, TextColour};
use ratatui::text::Span;

use crate::user_error::escape_control_characters;

/// Space between columns.
const GAP: &str = "  ";

/// Columns of the labels in a list of facts.
const LABEL_WIDTH: usize = 12;

/// Returns the colour of a cell by its text.
type CellColour = fn(&str) -> Option<TextColour>;

/// Rows of cells.
pub struct TextTable {
    /// For each column, true if its cells are aligned to the right.
    is_right: Vec<bool>,
    rows: Vec<Vec<String>>,
    /// The column whose cells get a colour by their text.
    painted: Option<(usize, CellColour)>,
}

impl TextTable {
    /// Creates a table from a sign for each column as in format strings: `<` aligns to the left, `>` to the
    /// right.
    pub fn new(columns: &str) -> TextTable {
        let is_right = columns.chars().map(|sign| sign == '>').collect();
        TextTable { is_right, rows: Vec::new(), painted: None }
    }

    /// Creates a table with a row of headings, each after the sign of its column.
    pub fn headed(headings: &[&str]) -> TextTable {
        let mut table = TextTable::new(&headings.iter().map(|heading| &heading[..1]).collect::<String>());
        table.rows.push(headings.iter().map(|heading| heading[1..].to_owned()).collect());
        table
    }

    /// Gives the cells of a column the colour that `colour_of` has for their text, if stdout wants colour.
    pub fn paint(&mut self, column: usize, colour_of: fn(&str) -> Option<TextColour>) {
        self.painted = colour::wants_colour(&io::stdout()).then_some((column, colour_of));
    }

    /// Adds a row. The last cell of a row with fewer cells than columns may have any length.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.rows.push(cells.iter().map(|cell| escape_control_characters(&cell.to_string())).collect());
    }

    /// Returns the lines, without spaces at their ends.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let widths: Vec<usize> = (0..self.is_right.len()).map(|column| self.width(column)).collect();
        self.rows.iter().map(move |row| {
            let cells = row.iter().zip(&widths).zip(&self.is_right).enumerate();
            let cells = cells.map(|(column, ((cell, width), is_right))| {
                let padding = " ".repeat(width.saturating_sub(width_of(cell)));
                let cell = self.coloured_cell(column, cell);
                if *is_right { format!("{padding}{cell}") } else { format!("{cell}{padding}") }
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        })
    }

    /// Writes the lines, each after `indent`.
    pub fn write(&self, indent: &str, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.lines().try_for_each(|line| writeln!(out, "{indent}{line}"))
    }

    /// Returns a cell, with its colour if it has one.
    fn coloured_cell<'c>(&self, column: usize, cell: &'c str) -> Cow<'c, str> {
        let colour = self.painted.filter(|(painted, _)| *painted == column);
        match colour.and_then(|(_, colour_of)| colour_of(cell)) {
            Some(colour) => colour::paint(cell, colour, true).into(),
            None => cell.into(),
        }
    }

    /// Returns the width of a column, without the last cells of shorter rows.
    fn width(&self, column: usize) -> usize {
        let columns = self.is_right.len();
        let rows = self.rows.iter().filter(|row| column + 1 < row.len() || row.len() == columns);
        rows.map(|row| width_of(&row[column])).max().unwrap_or(0)
    }
}

/// Returns the columns of a text on a terminal.
fn width_of(text: &str) -> usize {
    Span::raw(text).width()
}

/// Writes facts about one thing, a line each; facts without words are left out.
pub fn write_facts(facts: &[(&str, String)], out: &mut (impl Write + ?Sized)) -> io::Result<()> {
    let mut told = facts.iter().filter(|(_, words)| !words.is_empty());
    told.try_for_each(|(label, words)| {
        writeln!(out, "  {label:<LABEL_WIDTH$} {}", escape_control_characters(words))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::output::tests::text_of;

    #[test]
    fn columns_are_as_wide_as_their_contents() {
        let mut table = TextTable::headed(&["<NAME", ">COUNT", "<"]);
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
    fn a_column_may_have_colours() {
        let mut table = TextTable::headed(&["<ID", "<STATE", "<OF"]);
        table.row(&[&"done", &"done", &"x"]);
        table.painted = Some((1, |text| (text == "done").then_some(TextColour::Green)));
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(lines, ["ID    STATE  OF", "done  \u{1b}[1;32mdone\u{1b}[0m   x"]);
    }

    #[test]
    fn facts_without_words_are_left_out() {
        let text = text_of(|out| write_facts(&[("from", "a\n".into()), ("to", String::new())], out));
        assert_eq!(text, "  from         a\\n\n");
    }
}
