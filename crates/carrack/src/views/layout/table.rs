//! `carrack layout` for people: a block of aligned lines for each path, readable without colour.
//!
//! Names are escaped: those from a file system can't drive the terminal.

use std::fmt::Display;
use std::io::{self, Write};

use carrack_layout::{ComponentGeometry, STRIPE_COUNT_ALL, StripePattern};
use carrack_model::escape;

use super::json::pattern_name;
use super::{LayoutViewPathKind, PathLayout, TargetBytes, extents};
use crate::size;
use crate::views::table::{TextTable, write_facts};

/// Indent of the lines below a path.
const INDENT: &str = "  ";

impl PathLayout {
    /// Writes the block; a file's extents one by one.
    pub fn write_table(&self, out: &mut dyn Write, with_extents: bool) -> io::Result<()> {
        writeln!(out, "{}", escape(&self.path))?;
        write_facts(&self.facts(), out)?;
        self.write_components(out)?;
        self.write_targets(out)?;
        match &self.what {
            LayoutViewPathKind::File { size, .. } if with_extents => self.write_extents(out, *size),
            _ => Ok(()),
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = vec![("file system", self.file_system())];
        match &self.what {
            LayoutViewPathKind::File { size, is_released, .. } => {
                facts.push(("size", size::format_size(*size)));
                if *is_released {
                    facts.push(("released", "its data is in an archive; reading would bring it back".into()));
                }
            }
            LayoutViewPathKind::Directory { own_target } => {
                facts.push(("own target", escape(own_target.as_bytes())))
            }
            LayoutViewPathKind::Tree { own_target, size, file_count, released_count, .. } => {
                facts.push(("own target", escape(own_target.as_bytes())));
                facts.push(("files", format!("{file_count}, {}", size::format_size(*size))));
                if *released_count > 0 {
                    facts.push(("released", format!("{released_count} of them; they lie on no target")));
                }
            }
        }
        facts.extend(self.striping().map(|striping| (self.striping_word(), striping)));
        if !self.targets.is_empty() {
            facts.push(("imbalance", format!("{:.2} (1 is even)", self.imbalance())));
        }
        facts.extend(self.problem.as_ref().map(|problem| ("problem", escape(problem.as_bytes()))));
        facts
    }

    fn file_system(&self) -> String {
        match &self.mount_point {
            Some(point) => format!("{} at {}", self.kind, escape(point.as_os_str().as_encoded_bytes())),
            None => self.kind.to_string(),
        }
    }

    fn striping_word(&self) -> &'static str {
        if matches!(self.what, LayoutViewPathKind::File { .. }) { "striping" } else { "new files" }
    }

    fn components(&self) -> &[ComponentGeometry] {
        self.geometry.as_ref().map_or(&[], |geometry| &geometry.components)
    }

    fn striping(&self) -> Option<String> {
        let mut text = match self.components() {
            [] => return None,
            [one] => striping_of(one),
            several => format!("{} components", several.len()),
        };
        if let Some(mirrors) =
            self.geometry.as_ref().map(|geometry| geometry.mirrors).filter(|&count| count > 1)
        {
            text.push_str(&format!(", {mirrors} mirrors"));
        }
        Some(text)
    }

    /// Writes a table of the components, unless there is a single one, which the facts show.
    fn write_components(&self, out: &mut dyn Write) -> io::Result<()> {
        let components = self.components();
        if components.len() < 2 {
            return Ok(());
        }
        let mut table = TextTable::headed(&[">start", ">end", ">stripe size", ">count", "<pattern", "<pool"]);
        for component in components {
            table.row(&[
                &size::format_size(component.start),
                &if component.end == u64::MAX { "end".into() } else { size::format_size(component.end) },
                &if component.stripe_bytes == 0 {
                    "-".into()
                } else {
                    size::format_size(component.stripe_bytes)
                },
                &count_of(component),
                &pattern_name(component.pattern),
                &component.pool.as_ref().map_or("-".into(), |pool| escape(pool.as_bytes())),
            ]);
        }
        table.write(INDENT, out)
    }

    fn write_targets(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.targets.is_empty() {
            return Ok(());
        }
        let sum = self.bytes_placed().max(1) as f64;
        let has_servers = self.targets.iter().any(|target| target.server.is_some());
        let columns = ["<target", ">bytes", ">share", "<server"];
        let column_count = if has_servers { 4 } else { 3 };
        let mut table = TextTable::headed(&columns[..column_count]);
        for TargetBytes { label, server, bytes, .. } in &self.targets {
            let (label, bytes, share) =
                (escape(label.as_bytes()), size::format_size(*bytes), *bytes as f64 * 100.0 / sum);
            let server = server.as_ref().map_or("-".into(), |server| escape(server.as_bytes()));
            table.row(
                &[&label as &dyn Display, &bytes, &format_args!("{share:.1}%"), &server][..column_count],
            );
        }
        table.write(INDENT, out)
    }

    /// Writes the runs in bytes, to be compared with the output of other tools. None is held, as there may be
    /// many.
    fn write_extents(&self, out: &mut dyn Write, size: u64) -> io::Result<()> {
        let width = size.to_string().len().max("offset".len());
        writeln!(out, "{INDENT}{:>width$}  {:>width$}  target", "offset", "length")?;
        for run in extents::merged_extents(self) {
            let target = escape(run.target.as_bytes());
            writeln!(out, "{INDENT}{:>width$}  {:>width$}  {target}", run.offset, run.length)?;
        }
        Ok(())
    }
}

fn striping_of(component: &ComponentGeometry) -> String {
    let mut text = match component.pattern {
        StripePattern::Whole => "whole files".to_owned(),
        _ if component.stripe_bytes == 0 => format!("{} targets", count_of(component)),
        _ => format!("{} x {}", count_of(component), size::format_size(component.stripe_bytes)),
    };
    if !matches!(component.pattern, StripePattern::Whole | StripePattern::Striped) {
        text.push_str(&format!(", {}", pattern_name(component.pattern)));
    }
    if let Some(pool) = &component.pool {
        text.push_str(&format!(", pool {}", escape(pool.as_bytes())));
    }
    text
}

fn count_of(component: &ComponentGeometry) -> String {
    match component.stripe_count {
        0 => "default".into(),
        STRIPE_COUNT_ALL => "all".into(),
        count => count.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::layout::samples;
    use crate::views::output::tests::text_of;

    fn table(placement: &PathLayout, with_extents: bool) -> String {
        text_of(|out| placement.write_table(out, with_extents))
    }

    #[test]
    fn a_file_as_people_see_it() {
        let expected = "\
a\\n\\xff
  file system  Lustre at /mnt/lustre
  size         5.0 MiB
  striping     2 components
  imbalance    1.60 (1 is even)
    start      end  stripe size  count  pattern  pool
      0 B  1.0 MiB      1.0 MiB      1  striped  -
  1.0 MiB      end      1.0 MiB      4  striped  flash
  target     bytes  share  server
  OST0003  2.0 MiB  40.0%  10.0.0.3@tcp
  OST0000  1.0 MiB  20.0%  10.0.0.2@tcp
  OST0001  1.0 MiB  20.0%  10.0.0.2@tcp
  OST0002  1.0 MiB  20.0%  10.0.0.3@tcp
";
        assert_eq!(table(&samples::file(), false), expected);
    }

    #[test]
    fn extents_are_in_bytes() {
        let text = table(&samples::file(), true);
        let lines: Vec<_> = text.lines().rev().take(6).collect();
        assert_eq!(lines[0], "  4194304  1048576  OST0000");
        assert_eq!(lines[5], "   offset   length  target");
    }

    #[test]
    fn a_tree_as_people_see_it() {
        let expected = "\
tree
  file system  CephFS
  own target   /ceph
  files        3, 4.0 MiB
  released     1 of them; they lie on no target
  imbalance    1.50 (1 is even)
  problem      1 file: why
  target    bytes  share
  osd.2   3.0 MiB  75.0%
  osd.10  1.0 MiB  25.0%
";
        assert_eq!(table(&samples::tree(), true), expected);
    }

    #[test]
    fn a_directory_and_a_released_file() {
        let directory = "/tmp\n  file system  a plain file system\n  own target   tmpfs\n";
        assert_eq!(table(&samples::directory(), false), directory);
        let released = table(&samples::released(), false);
        assert!(released.contains("released     its data is in an archive") && !released.contains("OST"));
    }

    #[test]
    fn a_striping_is_a_few_words() {
        for (stripe_count, stripe_bytes, pool, pattern, words) in [
            (4, 1 << 20, None, StripePattern::Striped, "4 x 1.0 MiB"),
            (
                STRIPE_COUNT_ALL,
                1 << 22,
                Some("a\x1b"),
                StripePattern::Striped,
                "all x 4.0 MiB, pool a\\u{1b}",
            ),
            (1, 1 << 22, Some("data"), StripePattern::Objects, "1 x 4.0 MiB, objects, pool data"),
            (0, 0, None, StripePattern::Overstriped, "default targets, overstriped"),
            (1, 0, None, StripePattern::Whole, "whole files"),
        ] {
            let pool = pool.map(str::to_owned);
            let component =
                ComponentGeometry { start: 0, end: u64::MAX, stripe_bytes, stripe_count, pool, pattern };
            assert_eq!(striping_of(&component), words);
        }
    }
}
