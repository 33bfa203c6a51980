//! Every command writes every output format that its help lists.

use super::{palisade, text};

/// The formats that the help of a command lists, from the error for another one.
fn formats(command: &str) -> Vec<String> {
    let output = palisade(&[command, "-o", "no-format"]);
    let error = text(&output.stderr);
    let list = error.split("[possible values: ").nth(1);
    let list = list.unwrap_or_else(|| panic!("{command}: {error}"));
    let list = list.split(']').next().unwrap();
    list.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_listed_format_is_written() {
    let shop = ["-f", "examples/shop"];
    let flow = ["shop/web-0", "shop/api-0", "tcp/9000"];
    let calls: [(&str, Vec<&str>, &[&str]); 8] = [
        ("explain", [&shop[..], &flow].concat(), &[]),
        ("affecting", [&shop[..], &["shop/api-0"]].concat(), &[]),
        ("check", shop.into(), &[]),
        ("lint", shop.into(), &[]),
        ("connectivity", shop.into(), &[]),
        // Drawings and the matrix have no pairs.
        (
            "connectivity",
            [&shop[..], &["--pairs"]].concat(),
            &["matrix", "dot", "svg", "html"],
        ),
        (
            "diff",
            vec!["examples/shop", "examples/shop-with-tenants"],
            &[],
        ),
        ("crds", Vec::new(), &[]),
    ];
    for (command, args, without) in calls {
        let formats = formats(command);
        assert!(formats.len() > 1, "{command}: {formats:?}");
        for format in formats {
            let output = palisade(&[&[command][..], &args, &["-o", &format]].concat());
            let code = output.status.code();
            if without.contains(&&*format) {
                assert_eq!(code, Some(2), "{command} {args:?} -o {format}");
                continue;
            }
            let error = text(&output.stderr);
            let is_answer = matches!(code, Some(0 | 1));
            assert!(is_answer, "{command} {args:?} -o {format}: {error}");
        }
    }
}
