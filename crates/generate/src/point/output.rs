//! Writes the objects of a cluster as one JSON list or as YAML documents.

use std::io::Write;

use anyhow::Result;

use super::{Plan, each_object};
use crate::Written;
use crate::yaml::{Style, to_yaml};

/// How objects are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One compact `List`.
    Json,
    /// Documents in block style, as kubectl prints them.
    Yaml,
}

/// Writes a whole cluster; only one object at a time is in memory.
pub fn write(plan: &Plan, format: Format, out: &mut dyn Write) -> Result<Written> {
    let mut out = Counted { out, bytes: 0 };
    let mut objects = 0;
    match format {
        Format::Json => {
            out.write_all(br#"{"apiVersion":"v1","items":["#)?;
            each_object(plan, &mut |value| {
                if objects > 0 {
                    out.write_all(b",")?;
                }
                objects += 1;
                Ok(serde_json::to_writer(&mut out, value)?)
            })?;
            out.write_all(b"],\"kind\":\"List\",\"metadata\":{\"resourceVersion\":\"\"}}\n")?;
        }
        Format::Yaml => {
            let mut text = String::new();
            each_object(plan, &mut |value| {
                text.clear();
                if objects > 0 {
                    text.push_str("---\n");
                }
                objects += 1;
                to_yaml(&mut text, value, Style::Kubectl);
                Ok(out.write_all(text.as_bytes())?)
            })?;
        }
    }
    out.flush()?;
    Ok(Written {
        files: 1,
        documents: match format {
            Format::Json => 1,
            Format::Yaml => objects,
        },
        objects,
        bytes: out.bytes,
    })
}

/// Counts the bytes that it passes to the writer below.
struct Counted<'o> {
    out: &'o mut dyn Write,
    bytes: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n_bytes = self.out.write(bytes)?;
        self.bytes += n_bytes as u64;
        Ok(n_bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
