//! Connectivity as a page in a single file: a list, a map, a matrix.

mod digest;

use std::fmt::Write as _;
use std::io::Write;

use palisade_core::analysis::connect::Summary;

use self::digest::sha256_base64;
use super::Table;
use super::table::totals;
use crate::view::connectivity::PageView;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/list.js"),
    include_str!("page/map.js"),
    include_str!("page/matrix.js"),
    include_str!("page/detail.js"),
    include_str!("page/start.js"),
);

/// Writes the page. Its Content-Security-Policy lets the browser run and load only what is in it.
pub(crate) fn page(out: &mut impl Write, table: &Table, sums: &Summary) -> anyhow::Result<()> {
    let data = serde_json::to_string(&PageView::new(table, &totals(sums)))?;
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        sha256_base64(SCRIPT.as_bytes()),
        sha256_base64(STYLE.as_bytes()),
    );
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((place, after)) = after.split_once("}}") else {
            break;
        };
        out.write_all(before.as_bytes())?;
        match place {
            "policy" => out.write_all(policy.as_bytes())?,
            "title" => out.write_all(b"Connectivity")?,
            "style" => out.write_all(STYLE.as_bytes())?,
            "script" => out.write_all(SCRIPT.as_bytes())?,
            "data" => out.write_all(inert(&data).as_bytes())?,
            _ => {}
        }
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    Ok(())
}

/// Escapes JSON for a script element. The signs of markup occur only in its strings, where escapes
/// mean the same.
fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' => text.push_str("\\u003c"),
            '>' => text.push_str("\\u003e"),
            '&' => text.push_str("\\u0026"),
            '\u{2028}' => text.push_str("\\u2028"),
            '\u{2029}' => text.push_str("\\u2029"),
            // C1 control characters would command a terminal that prints the page.
            '\u{7f}'..='\u{9f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let hostile = "</script><!--\u{2028}&amp;\u{9b}1m";
        let data = serde_json::to_string(hostile).unwrap();
        let text = inert(&data);
        assert!(
            !text.contains(['<', '>', '&', '\u{2028}', '\u{9b}']),
            "{text}"
        );
        let back: String = serde_json::from_str(&text).unwrap();
        assert_eq!(back, hostile);
    }

    #[test]
    fn the_script_makes_no_markup_of_text() {
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "fetch(",
            "http:",
            "https:",
            "</script",
        ] {
            let script = SCRIPT.replace("http://www.w3.org/2000/svg", "");
            assert!(!script.contains(word), "{word}");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    }
}
