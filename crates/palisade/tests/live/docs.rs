//! The tutorial says what the commands print.

use crate::bed::{Bed, root};

/// Blocks of `text` that start with a command are what it prints, in the cluster of `examples/shop`.
pub(crate) fn tutorial(bed: &Bed) {
    let path = root().join("docs/reference/live.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut n_commands = 0;
    let mut made = page.clone();
    for block in page.split("\n```text\n$ ").skip(1) {
        let block = block.split("\n```").next().unwrap();
        let (command, shown) = block.split_once('\n').unwrap();
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[0], "palisade", "{command}");
        let ran = bed.palisade(&words[1..]);
        let printed = [ran.out, ran.err].concat();
        let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let printed = printed.join("\n");
        made = made.replace(
            &format!("$ {command}\n{shown}"),
            &format!("$ {command}\n{printed}"),
        );
        n_commands += 1;
    }
    assert!(n_commands >= 3, "{n_commands}");
    if std::env::var_os("UPDATE_DOCS").is_some() && made != page {
        std::fs::write(&path, &made).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page, made, "run with UPDATE_DOCS=1 and read the difference");
}
