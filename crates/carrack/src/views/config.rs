//! The options in effect: a table for people, JSON lines for programs.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use carrack_model::escape;
use serde::Serialize;

use crate::options::config::{ConfiguredOptionRow, ValueOrigin};
use crate::views::json::write_line;
use crate::views::table::TextTable;

/// Writes a table for each command; the default, which may be a long text, is its last column.
pub fn write_table(tables: &[(&str, Vec<ConfiguredOptionRow>)], out: &mut impl Write) -> io::Result<()> {
    for (index, (command, rows)) in tables.iter().filter(|(_, rows)| !rows.is_empty()).enumerate() {
        if index > 0 {
            writeln!(out)?;
        }
        writeln!(out, "carrack {command}")?;
        let mut table = TextTable::headed(&["<OPTION", "<VALUE", "<UNIT", "<FROM", "<DEFAULT"]);
        for row in rows {
            let value = row.values.iter().map(escaped_value).collect::<Vec<_>>().join(" ");
            table.row(&[
                &row.option,
                &if row.values.is_empty() { "-" } else { &value },
                &row.unit.unwrap_or_default(),
                &row.origin,
                &if row.default.is_empty() { "-" } else { &row.default },
            ]);
        }
        table.write("  ", out)?;
    }
    Ok(())
}

fn escaped_value(value: &OsString) -> String {
    escape(value.as_bytes())
}

#[derive(Serialize)]
struct ConfigShowOptionLine<'a> {
    command: &'a str,
    option: &'a str,
    values: Vec<String>,
    unit: Option<&'static str>,
    origin: &'static str,
    place: Option<String>,
    default: Option<&'a str>,
}

/// Writes an object for each option.
pub fn write_json(tables: &[(&str, Vec<ConfiguredOptionRow>)], out: &mut impl Write) -> io::Result<()> {
    for (command, row) in tables.iter().flat_map(|(command, rows)| rows.iter().map(move |row| (command, row)))
    {
        let line = ConfigShowOptionLine {
            command,
            option: &row.option,
            values: row.values.iter().map(escaped_value).collect(),
            unit: row.unit,
            origin: match row.origin {
                ValueOrigin::CommandLine => "command line",
                ValueOrigin::Environment(_) => "environment",
                ValueOrigin::Profile(..) => "profile",
                ValueOrigin::File(_) => "file",
                ValueOrigin::Default => "default",
            },
            place: Some(row.origin.to_string())
                .filter(|_| !matches!(row.origin, ValueOrigin::CommandLine | ValueOrigin::Default)),
            default: Some(&*row.default).filter(|default| !default.is_empty()),
        };
        write_line(&line, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::output::tests::text_of;

    #[test]
    fn columns_are_as_wide_as_they_have_to_be() {
        let buffer = ConfiguredOptionRow {
            option: "buffer".into(),
            values: vec!["1GiB".into()],
            origin: ValueOrigin::Environment("CARRACK_BUFFER".into()),
            default: "256MiB".into(),
            unit: Some("bytes"),
        };
        let csv = ConfiguredOptionRow {
            option: "csv".into(),
            values: Vec::new(),
            origin: ValueOrigin::Default,
            default: "256MiB".into(),
            unit: None,
        };
        let rows = vec![buffer, csv];
        let text = text_of(|out| write_table(&[("ls", vec![]), ("cp", rows)], out));
        let expected = "\
carrack cp
  OPTION  VALUE  UNIT   FROM            DEFAULT
  buffer  1GiB   bytes  CARRACK_BUFFER  256MiB
  csv     -             default         256MiB
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_line_says_it_all() {
        let row = ConfiguredOptionRow {
            option: "targets".into(),
            values: vec!["/a".into(), "/b".into()],
            origin: ValueOrigin::Environment("CARRACK_TARGETS".into()),
            default: String::new(),
            unit: None,
        };
        let text = text_of(|out| write_json(&[("cp", vec![row])], out));
        let expected = "{\"command\":\"cp\",\"option\":\"targets\",\"values\":[\"/a\",\"/b\"],\"unit\":null,\
                        \"origin\":\"environment\",\"place\":\"CARRACK_TARGETS\",\"default\":null}\n";
        assert_eq!(text, expected);
    }
}
