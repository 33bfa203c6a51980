//! The bare parses: the least that any reader of the same bytes has to do, on one thread.

mod objects;

use std::fs;
use std::hint::black_box;
use std::path::Path;

use anyhow::{Context as _, Result};
use saphyr_parser::{Event, Parser};

use self::objects::List;

/// Reads every file of `dir` and takes all events from the parser; returns the number of documents.
pub(crate) fn yaml(dir: &Path) -> Result<u64> {
    let entries = fs::read_dir(dir).with_context(|| format!("cannot read `{}`", dir.display()))?;
    let mut n_documents = 0;
    for entry in entries {
        let path = entry?.path();
        let name = || format!("cannot parse `{}`", path.display());
        let text = fs::read_to_string(&path).with_context(name)?;
        for event in Parser::new_from_str(&text) {
            let (event, span) = event.with_context(name)?;
            if let Event::DocumentStart(_) = event {
                n_documents += 1;
            }
            black_box((event, span));
        }
    }
    Ok(n_documents)
}

/// Reads `file` and decodes what Palisade needs of it; returns the number of items.
pub(crate) fn json(file: &Path) -> Result<u64> {
    let name = || format!("cannot parse `{}`", file.display());
    let bytes = fs::read(file).with_context(name)?;
    items(&bytes).with_context(name)
}

/// Decodes what Palisade needs of a list; returns the number of items.
pub(crate) fn items(bytes: &[u8]) -> Result<u64> {
    let list: List<'_> = serde_json::from_slice(bytes)?;
    let n_items = list.items.len() as u64;
    // Freeing memory is not part of parsing, and an exiting process need not do it.
    std::mem::forget(black_box(list));
    Ok(n_items)
}
