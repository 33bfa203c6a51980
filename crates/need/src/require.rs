//! The value of `PALISADE_REQUIRE`.

/// Every word that it may have.
pub const WORDS: [&str; 11] = [
    "namespaces",
    "root",
    "owned-tables",
    "ip",
    "git",
    "valgrind",
    "browser",
    "helm",
    "api-server",
    "cluster",
    "upstream",
];

/// The required needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Require {
    /// Everything.
    All,
    /// These, by their words.
    These(Vec<String>),
}

impl Require {
    /// The value in the environment.
    pub fn from_environment() -> Result<Require, String> {
        let text = std::env::var("PALISADE_REQUIRE").unwrap_or_default();
        Require::parse(&text)
    }

    /// Reads `all`, or words with commas between them. An unknown word is an error: it would
    /// silently require nothing.
    pub fn parse(text: &str) -> Result<Require, String> {
        let words = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        let words: Vec<String> = words.map(str::to_owned).collect();
        if words == ["all"] {
            return Ok(Require::All);
        }
        match words.iter().find(|it| !WORDS.contains(&it.as_str())) {
            Some(word) => Err(format!(
                "PALISADE_REQUIRE has `{word}`; it may be `all`, or some of {}",
                WORDS.join(", ")
            )),
            None => Ok(Require::These(words)),
        }
    }

    /// Whether a need is required.
    pub fn has(&self, word: &str) -> bool {
        match self {
            Require::All => true,
            Require::These(words) => words.iter().any(|it| it == word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_known_or_refused() {
        let these = |words: &[&str]| {
            Ok(Require::These(
                words.iter().map(|it| (*it).to_owned()).collect(),
            ))
        };
        assert_eq!(Require::parse(""), these(&[]));
        assert_eq!(Require::parse("all"), Ok(Require::All));
        assert_eq!(Require::parse("root, ip,"), these(&["root", "ip"]));
        assert!(Require::parse("namespace").is_err());
        assert!(Require::parse("all,root").is_err());
        assert!(Require::All.has("browser"));
        assert!(!Require::parse("root").unwrap().has("ip"));
    }
}
