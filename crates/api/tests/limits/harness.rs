//! The harness: a limit, the documents at its edges, and the expected problems of each.

use std::ops::RangeInclusive;

use palisade_api::{Object, Options, Source, read};

/// A code and its expected path.
type Found = (String, String);

/// One limit, one-of, enumeration, requirement or default, and the documents that show it.
pub(crate) struct Limit {
    /// Starts with the section or decision of the specification.
    pub(crate) name: String,
    cases: Vec<Case>,
}

struct Case {
    name: String,
    document: String,
    options: Options,
    want: Want,
}

enum Want {
    /// No error.
    Fits,
    /// No error, and exactly these warnings and notes.
    Warns(Vec<Found>),
    /// No error, and read like this other document.
    Means(String),
    /// No error, and a condition on the object.
    Reads(fn(&Object<'_>) -> bool),
    /// This error, its required and its possible consequences, and no other.
    Violates {
        error: Found,
        also: Vec<Found>,
        may: Vec<Found>,
    },
}

fn found(code: &str, path: &str) -> Found {
    (code.to_owned(), path.to_owned())
}

/// Starts a limit.
pub(crate) fn limit(name: impl Into<String>) -> Limit {
    Limit {
        name: name.into(),
        cases: Vec::new(),
    }
}

impl Limit {
    fn case(mut self, name: &str, document: String, want: Want) -> Limit {
        self.cases.push(Case {
            name: name.to_owned(),
            document,
            options: Options::default(),
            want,
        });
        self
    }

    /// A document without errors.
    pub(crate) fn fits(self, name: &str, document: String) -> Limit {
        self.case(name, document, Want::Fits)
    }

    /// A document without errors that has exactly one warning or note.
    pub(crate) fn warns(self, name: &str, document: String, code: &str, path: &str) -> Limit {
        self.case(name, document, Want::Warns(vec![found(code, path)]))
    }

    /// A document without any problem.
    pub(crate) fn clean(self, name: &str, document: String) -> Limit {
        self.case(name, document, Want::Warns(Vec::new()))
    }

    /// A document with the same meaning as another.
    pub(crate) fn means(self, name: &str, document: String, other: String) -> Limit {
        self.case(name, document, Want::Means(other))
    }

    /// A document without errors whose object meets a condition.
    pub(crate) fn reads(self, name: &str, document: String, so: fn(&Object<'_>) -> bool) -> Limit {
        self.case(name, document, Want::Reads(so))
    }

    /// A document with exactly one error.
    pub(crate) fn violates(self, name: &str, document: String, code: &str, path: &str) -> Limit {
        let want = Want::Violates {
            error: found(code, path),
            also: Vec::new(),
            may: Vec::new(),
        };
        self.case(name, document, want)
    }

    /// Every violation so far has this error as a consequence.
    pub(crate) fn also(mut self, code: &str, path: &str) -> Limit {
        for case in &mut self.cases {
            if let Want::Violates { also, .. } = &mut case.want {
                also.push(found(code, path));
            }
        }
        self
    }

    /// Every violation so far may also have this error: the specification leaves it open.
    pub(crate) fn may(mut self, code: &str, path: &str) -> Limit {
        for case in &mut self.cases {
            if let Want::Violates { may, .. } = &mut case.want {
                may.push(found(code, path));
            }
        }
        self
    }

    /// The last document is read as an API server would store it.
    pub(crate) fn when_pruned(mut self) -> Limit {
        if let Some(case) = self.cases.last_mut() {
            case.options = Options { as_pruned: true };
        }
        self
    }

    /// The number of documents that fit, and of those that do not.
    pub(crate) fn count(&self) -> (usize, usize) {
        let violates = |case: &&Case| matches!(case.want, Want::Violates { .. });
        let violating = self.cases.iter().filter(violates).count();
        (self.cases.len() - violating, violating)
    }
}

/// Reads every document and reports all differences at once.
pub(crate) fn check(limits: impl Iterator<Item = Limit>) {
    let mut wrong = String::new();
    for limit in limits {
        for case in &limit.cases {
            if let Err(why) = check_case(case) {
                let (limit, name, document) = (&limit.name, &case.name, shortened(&case.document));
                wrong.push_str(&format!("{limit} / {name}: {why}\n{document}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn check_case(case: &Case) -> Result<(), String> {
    let sources = [Source::new(
        "sample.yaml",
        case.document.clone().into_bytes(),
    )];
    let manifests = read(&sources, case.options, &|_| {});
    let (errors, others): (Vec<_>, Vec<_>) =
        manifests.problems.iter().partition(|it| it.is_error());
    let list = |problems: &[&palisade_api::Problem]| -> Vec<Found> {
        let path = |it: &palisade_api::Problem| it.path.clone().unwrap_or_default();
        let problems = problems.iter();
        problems
            .map(|it| (it.code.name().to_owned(), path(it)))
            .collect()
    };
    let mut errors = list(&errors);
    if let Want::Violates { error, also, may } = &case.want {
        for wanted in std::iter::once(error).chain(also) {
            match errors.iter().position(|it| it == wanted) {
                Some(at) => drop(errors.remove(at)),
                None => return Err(format!("no {wanted:?} among the errors {errors:?}")),
            }
        }
        errors.retain(|it| !may.contains(it));
        return match errors.is_empty() {
            true => Ok(()),
            false => Err(format!("further errors: {errors:?}")),
        };
    }
    if !errors.is_empty() {
        return Err(format!("errors: {errors:?}"));
    }
    let [object] = manifests.objects.as_slice() else {
        return Err(format!("{} objects were read", manifests.objects.len()));
    };
    match &case.want {
        Want::Warns(wanted) if list(&others) != *wanted => {
            Err(format!("not {wanted:?} but {:?}", list(&others)))
        }
        Want::Reads(so) if !so(object) => Err(format!("it is read as {object:?}")),
        Want::Means(other) => {
            let sources = [Source::new("other.yaml", other.clone().into_bytes())];
            let others = read(&sources, Options::default(), &|_| {});
            let fits = !others.problems.iter().any(palisade_api::Problem::is_error);
            let meaning = others.objects.first().map(meaning);
            match fits && meaning == Some(self::meaning(object)) {
                true => Ok(()),
                false => Err(format!("it does not mean the same as\n{other}")),
            }
        }
        Want::Fits | Want::Warns(_) | Want::Reads(_) | Want::Violates { .. } => Ok(()),
    }
}

/// The fields of an object, without their places.
fn meaning(object: &Object<'_>) -> String {
    let text = format!("{:?}", object.spec);
    let mut parts = text.split("Span { start: ");
    let mut meaning = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        meaning.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    meaning
}

fn shortened(document: &str) -> String {
    let lines = document.lines().map(|line| {
        let mut short: String = line.chars().take(300).collect();
        if short.len() < line.len() {
            short.push_str(" ...");
        }
        format!("    {short}\n")
    });
    lines.collect()
}

/// A flow list of this many entries.
pub(crate) fn entries(count: usize, entry: impl Fn(usize) -> String) -> String {
    let entries: Vec<String> = (0..count).map(entry).collect();
    format!("[{}]", entries.join(", "))
}

/// A number: beside, at and inside both ends.
pub(crate) fn number(
    name: &str,
    range: RangeInclusive<i64>,
    path: &str,
    document: impl Fn(i64) -> String,
) -> Limit {
    let (least, most) = range.into_inner();
    let mut limit = limit(name);
    for fitting in [least, least + 1, most - 1, most] {
        limit = limit.fits(&fitting.to_string(), document(fitting));
    }
    for violating in [least - 1, most + 1] {
        limit = limit.violates(
            &violating.to_string(),
            document(violating),
            "OUT-OF-RANGE",
            path,
        );
    }
    limit
}

/// The length of a list: beside, at and inside both ends. A least of zero has nothing below it.
pub(crate) fn list(
    name: &str,
    range: RangeInclusive<usize>,
    path: &str,
    document: impl Fn(usize) -> String,
) -> Limit {
    let (least, most) = range.into_inner();
    let mut limit = limit(name);
    for fitting in [least, least + 1, most - 1, most] {
        limit = limit.fits(&format!("{fitting} entries"), document(fitting));
    }
    if let Some(few) = least.checked_sub(1) {
        limit = limit.violates(&format!("{few} entries"), document(few), "TOO-FEW", path);
    }
    let many = most + 1;
    limit.violates(&format!("{many} entries"), document(many), "TOO-MANY", path)
}

/// A list without a maximum.
pub(crate) fn unlimited(name: &str, document: impl Fn(usize) -> String) -> Limit {
    [0, 1, 26, 101, 1001]
        .into_iter()
        .fold(limit(name), |limit, count| {
            limit.fits(&format!("{count} entries"), document(count))
        })
}

/// The length of a text: one less than the most, the most, one more. Characters count, not bytes.
pub(crate) fn length(
    name: &str,
    most: usize,
    (code, path): (&str, &str),
    document: impl Fn(&str) -> String,
) -> Limit {
    limit(name)
        .fits("one less", document(&"a".repeat(most - 1)))
        .fits("the most", document(&"a".repeat(most)))
        .violates("one more", document(&"a".repeat(most + 1)), code, path)
}

/// An enumeration: every word, the words in other cases, and wrong ones.
pub(crate) fn words(
    name: &str,
    legal: &[&str],
    wrong: &[&str],
    path: &str,
    document: impl Fn(&str) -> String,
) -> Limit {
    let quoted = |word: &str| document(&format!("\"{word}\""));
    let mut limit = limit(name);
    let mut others: Vec<String> = wrong.iter().map(|word| (*word).to_owned()).collect();
    for word in legal {
        limit = limit.fits(word, document(word));
        others.extend([word.to_lowercase(), word.to_uppercase()]);
    }
    others.retain(|word| !legal.contains(&word.as_str()));
    for word in &others {
        limit = limit.violates(&format!("`{word}`"), quoted(word), "UNKNOWN-VALUE", path);
    }
    limit
}

/// A one-of: no field, each alone, each as null, every two, and all.
pub(crate) fn one_of(
    name: &str,
    fields: &[&str],
    (code, path): (&str, &str),
    document: impl Fn(&str) -> String,
) -> Limit {
    let mut limit = limit(name).violates("none", document(""), code, path);
    for (at, field) in fields.iter().enumerate() {
        let key = field.split(':').next().unwrap_or_default();
        limit = limit.fits(key, document(field)).violates(
            &format!("{key} null (D24)"),
            document(&format!("{key}: null")),
            code,
            path,
        );
        for other in fields.iter().skip(at + 1) {
            let both = format!("{field}, {other}");
            limit = limit.violates(&both, document(&both), code, path);
        }
    }
    if fields.len() > 2 {
        limit = limit.violates("all", document(&fields.join(", ")), code, path);
    }
    limit
}

/// A required field: absent and null (D24).
pub(crate) fn required(name: &str, path: &str, absent: String, null: String) -> Limit {
    limit(name)
        .violates("absent", absent, "REQUIRED", path)
        .violates("null", null, "REQUIRED", path)
}

/// Documents that each have the same error, at their own path.
pub(crate) fn all_violate(name: &str, code: &str, cases: Vec<(String, String)>) -> Limit {
    cases
        .into_iter()
        .fold(limit(name), |limit, (document, path)| {
            let case = path.clone();
            limit.violates(&case, document, code, &path)
        })
}

/// Gives a module its tests, each of some groups, and its list of limits.
macro_rules! groups {
    ($($test:ident: [$($group:ident),* $(,)?]),* $(,)?) => {
        /// Every limit of the module.
        pub(crate) fn all() -> Vec<crate::harness::Limit> {
            let groups: Vec<Vec<crate::harness::Limit>> = vec![$($($group()),*),*];
            groups.into_iter().flatten().collect()
        }

        mod tests {
            $(#[test]
            fn $test() {
                crate::harness::check([$(super::$group()),*].into_iter().flatten());
            })*
        }
    };
}
pub(crate) use groups;
