//! The options that hold: a table for people, JSON lines for machines.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use carrack_model::escape;
use serde::Serialize;

use crate::config::{Origin, Row};

const HEADINGS: [&str; 5] = ["OPTION", "VALUE", "UNIT", "FROM", "DEFAULT"];

/// A table for each command; a longer one for what has no limit is its last column.
pub fn write_table(tables: &[(&str, Vec<Row>)], out: &mut impl Write) -> io::Result<()> {
    for (index, (command, rows)) in tables.iter().filter(|(_, rows)| !rows.is_empty()).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "carrack {command}")?;
        let lines: Vec<[String; 5]> =
            [HEADINGS.map(str::to_owned)].into_iter().chain(rows.iter().map(cells)).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3].map(width);
        for [option, value, unit, from, default] in &lines {
            let [a, b, c, d] = widths;
            let line = format!("  {option:<a$}  {value:<b$}  {unit:<c$}  {from:<d$}  {default}");
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    Ok(())
}

fn cells(row: &Row) -> [String; 5] {
    let value = match row.values.as_slice() {
        [] => "-".to_owned(),
        values => values.iter().map(shown).collect::<Vec<_>>().join(" "),
    };
    let default = if row.default.is_empty() { "-" } else { &row.default };
    [
        row.option.clone(),
        value,
        row.unit.unwrap_or_default().to_owned(),
        row.origin.to_string(),
        default.to_owned(),
    ]
}

fn shown(value: &OsString) -> String {
    escape(value.as_bytes())
}

#[derive(Serialize)]
struct Line<'a> {
    command: &'a str,
    option: &'a str,
    values: Vec<String>,
    unit: Option<&'static str>,
    origin: &'static str,
    place: Option<String>,
    default: Option<&'a str>,
}

/// An object for each option.
pub fn write_json(tables: &[(&str, Vec<Row>)], out: &mut impl Write) -> io::Result<()> {
    for (command, row) in tables.iter().flat_map(|(command, rows)| rows.iter().map(move |row| (command, row)))
    {
        let line = Line {
            command,
            option: &row.option,
            values: row.values.iter().map(shown).collect(),
            unit: row.unit,
            origin: match row.origin {
                Origin::CommandLine => "command line",
                Origin::Environment(_) => "environment",
                Origin::Profile(..) => "profile",
                Origin::File(_) => "file",
                Origin::Default => "default",
            },
            place: Some(row.origin.to_string())
                .filter(|_| !matches!(row.origin, Origin::CommandLine | Origin::Default)),
            default: Some(&*row.default).filter(|default| !default.is_empty()),
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_have_to_be() {
        let row = |option: &str, values: &[&str], unit, origin| Row {
            option: option.into(),
            values: values.iter().map(OsString::from).collect(),
            origin,
            default: "256MiB".into(),
            unit,
        };
        let variable = Origin::Environment("CARRACK_BUFFER".into());
        let rows =
            vec![row("buffer", &["1GiB"], Some("bytes"), variable), row("csv", &[], None, Origin::Default)];
        let mut text = Vec::new();
        write_table(&[("ls", vec![]), ("cp", rows)], &mut text).unwrap();
        let expected = "\
carrack cp
  OPTION  VALUE  UNIT   FROM            DEFAULT
  buffer  1GiB   bytes  CARRACK_BUFFER  256MiB
  csv     -             default         256MiB
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn a_line_says_it_all() {
        let row = Row {
            option: "targets".into(),
            values: vec!["/a".into(), "/b".into()],
            origin: Origin::Environment("CARRACK_TARGETS".into()),
            default: String::new(),
            unit: None,
        };
        let mut text = Vec::new();
        write_json(&[("cp", vec![row])], &mut text).unwrap();
        let expected = "{\"command\":\"cp\",\"option\":\"targets\",\"values\":[\"/a\",\"/b\"],\"unit\":null,\
                        \"origin\":\"environment\",\"place\":\"CARRACK_TARGETS\",\"default\":null}\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
