//! Label selectors: a conjunction of requirements on a set of labels.

/// How a requirement compares a label with its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label is present and its value is listed.
    In,
    /// The label is absent or its value is not listed.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
}

impl Operator {
    /// All operators, in the order of the API.
    pub const ALL: [Operator; 4] = [
        Operator::In,
        Operator::NotIn,
        Operator::Exists,
        Operator::DoesNotExist,
    ];

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        match self {
            Operator::In => "In",
            Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
        }
    }

    /// Parses the name in the API. The comparison is case-sensitive, as in the API.
    pub fn from_name(name: &str) -> Option<Operator> {
        Operator::ALL
            .into_iter()
            .find(|operator| operator.name() == name)
    }
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement<S> {
    /// The label's key.
    pub key: S,
    /// The comparison.
    pub operator: Operator,
    /// The values to compare with; empty for `Exists` and `DoesNotExist`.
    pub values: Vec<S>,
}

impl<S: AsRef<str>> Requirement<S> {
    /// Returns whether a label set with this value (or none) under the key meets the requirement.
    pub fn accepts(&self, value: Option<&str>) -> bool {
        let listed = |value: &str| self.values.iter().any(|it| it.as_ref() == value);
        match self.operator {
            Operator::In => value.is_some_and(listed),
            // As in Kubernetes, an absent label is not one of the values: `NotIn` selects objects
            // without the label.
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

/// Requirements that must all hold; a selector without any selects everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector<S> {
    /// The requirements, in the order of the object.
    pub requirements: Vec<Requirement<S>>,
}

impl<S: AsRef<str>> Selector<S> {
    /// Returns whether the selector has no requirement.
    pub fn selects_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether the selector selects a label set; `label` looks up one key in it.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.requirements
            .iter()
            .all(|it| it.accepts(label(it.key.as_ref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requirement(operator: Operator, values: &[&'static str]) -> Requirement<&'static str> {
        Requirement {
            key: "k",
            operator,
            values: values.to_vec(),
        }
    }

    #[test]
    fn not_in_holds_for_an_absent_label_and_in_does_not() {
        assert!(requirement(Operator::NotIn, &["a"]).accepts(None));
        assert!(!requirement(Operator::NotIn, &["a"]).accepts(Some("a")));
        assert!(!requirement(Operator::In, &["a"]).accepts(None));
        assert!(requirement(Operator::In, &["a", "b"]).accepts(Some("b")));
    }

    #[test]
    fn exists_and_does_not_exist_look_only_at_presence() {
        assert!(requirement(Operator::Exists, &[]).accepts(Some("")));
        assert!(!requirement(Operator::Exists, &[]).accepts(None));
        assert!(requirement(Operator::DoesNotExist, &[]).accepts(None));
    }

    #[test]
    fn a_selector_is_a_conjunction_and_empty_selects_everything() {
        let both = Selector {
            requirements: vec![
                requirement(Operator::Exists, &[]),
                requirement(Operator::NotIn, &["x"]),
            ],
        };
        assert!(both.matches(|_| Some("y")));
        assert!(!both.matches(|_| Some("x")));
        let everything: Selector<&str> = Selector {
            requirements: vec![],
        };
        assert!(everything.selects_everything() && everything.matches(|_| None));
    }
}
