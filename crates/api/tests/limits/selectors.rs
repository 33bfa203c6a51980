//! Label selectors, section 2.0, at every place that has one.

use palisade_core::policy::Direction::{Egress, Ingress};

use crate::documents::{ANP, ANP_K, BANP, CNP, CNP0, DNP, Form, NP, NP0, NP0_SHIPPED};
use crate::harness::{Limit, all_violate, groups, length, limit, required, words};

groups! {
    operators_and_values: [empty_selectors, operators, values],
    shapes: [shapes_of_selectors],
    labels: [labels_in_selectors, syntax_of_labels],
}

/// A place for a selector.
struct Place {
    label: String,
    path: String,
    document: Box<dyn Fn(&str) -> String>,
    /// The path of the subject that is unreadable with the selector (D20, D64).
    subject: Option<&'static str>,
    /// The policy's own `podSelector`: D110 requires an error and leaves open which.
    own_pods: bool,
    /// Whether a map of other keys is a selector too (D70).
    bare: bool,
}

impl Place {
    /// Adds the consequences of an unreadable selector at this place.
    fn with_consequences(&self, limit: Limit) -> Limit {
        match self.subject {
            Some(path) if self.own_pods => limit.may("INVALID-SUBJECT", path),
            Some(path) => limit.also("INVALID-SUBJECT", path),
            None => limit,
        }
    }

    fn inside(&self, path: &str) -> String {
        format!("{}.{path}", self.path)
    }

    fn with(&self, selector: &str) -> String {
        (self.document)(selector)
    }
}

/// `template` has `@` in the place of the selector.
fn place(
    form: &Form,
    path: &str,
    template: &'static str,
    document: impl Fn(&str) -> String + 'static,
) -> Place {
    let fill = move |selector: &str| document(&template.replace('@', selector));
    Place {
        label: format!("{path} of {}", form.label()),
        path: path.to_owned(),
        document: Box::new(fill),
        subject: None,
        own_pods: false,
        bare: false,
    }
}

fn places() -> Vec<Place> {
    let spec = |form: &'static Form, path: &str, template: &'static str| {
        let subject = ["spec.subject", "spec.appliedTo", "spec.podSelector"];
        Place {
            subject: subject.into_iter().find(|it| path.starts_with(it)),
            own_pods: path == "spec.podSelector",
            ..place(form, path, template, |text| form.spec(text))
        }
    };
    let from = |form: &'static Form, inside: &str, template: &'static str| {
        place(form, &form.peer_path(Ingress, inside), template, |text| {
            form.peer(Ingress, text)
        })
    };
    let to = |form: &'static Form, inside: &str, template: &'static str| {
        place(form, &form.peer_path(Egress, inside), template, |text| {
            form.peer(Egress, text)
        })
    };
    let bare = |place: Place| Place {
        bare: true,
        ..place
    };
    let mut places = vec![
        spec(&NP, "spec.podSelector", "podSelector: @"),
        from(&NP, "podSelector", "podSelector: @"),
        from(&NP, "namespaceSelector", "namespaceSelector: @"),
        to(&NP, "podSelector", "podSelector: @, namespaceSelector: {}"),
        to(
            &NP,
            "namespaceSelector",
            "podSelector: {}, namespaceSelector: @",
        ),
        from(
            &ANP_K,
            "namespaces.namespaceSelector",
            "namespaces: {namespaceSelector: @}",
        ),
        from(
            &ANP_K,
            "pods.namespaces.namespaceSelector",
            "pods: {namespaces: {namespaceSelector: @}, podSelector: {}}",
        ),
        to(
            &ANP_K,
            "pods.podSelector",
            "pods: {namespaces: {related: Self}, podSelector: @}",
        ),
        bare(spec(&NP0, "spec.podSelector", "podSelector: @")),
        bare(from(&NP0, "pods", "pods: @")),
        bare(from(&NP0, "namespaces", "namespaces: @")),
        bare(from(&NP0_SHIPPED, "podSelector", "podSelector: @")),
        bare(from(
            &NP0_SHIPPED,
            "namespaceSelector",
            "namespaceSelector: @",
        )),
    ];
    for form in [&ANP, &BANP, &CNP] {
        places.extend([
            spec(form, "spec.subject.namespaces", "subject: {namespaces: @}"),
            spec(
                form,
                "spec.subject.pods.namespaceSelector",
                "subject: {pods: {namespaceSelector: @, podSelector: {}}}",
            ),
            spec(
                form,
                "spec.subject.pods.podSelector",
                "subject: {pods: {namespaceSelector: {}, podSelector: @}}",
            ),
            from(form, "namespaces", "namespaces: @"),
            from(
                form,
                "pods.namespaceSelector",
                "pods: {namespaceSelector: @, podSelector: {}}",
            ),
            from(
                form,
                "pods.podSelector",
                "pods: {namespaceSelector: {}, podSelector: @}",
            ),
            to(form, "namespaces", "namespaces: @"),
            to(form, "nodes", "nodes: @"),
        ]);
    }
    for form in [&CNP0, &DNP] {
        places.extend([
            spec(
                form,
                "spec.appliedTo.namespaceSelector",
                "appliedTo: {namespaceSelector: @}",
            ),
            spec(
                form,
                "spec.appliedTo.podSelector",
                "appliedTo: {namespaceSelector: {}, podSelector: @}",
            ),
            from(form, "podSelector", "podSelector: @"),
            from(form, "namespaces.selector", "namespaces: {selector: @}"),
            to(
                form,
                "namespaces.except[0]",
                "namespaces: {selector: {}, except: [@]}",
            ),
        ]);
    }
    places
}

fn each(name: &str, at: impl Fn(&str, &Place) -> Limit) -> Vec<Limit> {
    let one = |place: &Place| {
        let name = format!("{name} {}", place.label);
        place.with_consequences(at(&name, place))
    };
    places().iter().map(one).collect()
}

fn empty_selectors() -> Vec<Limit> {
    each("2.0 no requirement selects everything", |name, it| {
        limit(name)
            .fits("{}", it.with("{}"))
            .means("no labels", it.with("{matchLabels: {}}"), it.with("{}"))
            .means(
                "no expressions",
                it.with("{matchExpressions: []}"),
                it.with("{}"),
            )
            .means(
                "neither",
                it.with("{matchLabels: {}, matchExpressions: []}"),
                it.with("{}"),
            )
            .means(
                "null (D24)",
                it.with("{matchLabels: null, matchExpressions: null}"),
                it.with("{}"),
            )
    })
}

fn operators() -> Vec<Limit> {
    each("2.0 operator", |name, it| {
        let path = it.inside("matchExpressions[0].operator");
        let wrong = ["Equals", "Gt", "notIn", "doesNotExist", "="];
        let limit = words(name, &["In", "NotIn"], &wrong, &path, |word| {
            it.with(&format!(
                "{{matchExpressions: [{{key: a, operator: {word}, values: [b]}}]}}"
            ))
        });
        ["Exists", "DoesNotExist"]
            .into_iter()
            .fold(limit, |limit, word| {
                let expression = |word: &str| {
                    it.with(&format!(
                        "{{matchExpressions: [{{key: a, operator: {word}}}]}}"
                    ))
                };
                limit.fits(word, expression(word)).violates(
                    &word.to_lowercase(),
                    expression(&word.to_lowercase()),
                    "UNKNOWN-VALUE",
                    &path,
                )
            })
    })
}

fn values() -> Vec<Limit> {
    each("2.0 D17 values fit the operator", |name, it| {
        let path = it.inside("matchExpressions[0].values");
        let with = |operator: &str, values: &str| {
            it.with(&format!(
                "{{matchExpressions: [{{key: a, operator: {operator}{values}}}]}}"
            ))
        };
        let mut limit = limit(name);
        for operator in ["In", "NotIn"] {
            for (count, values) in [("one", ", values: [b]"), ("two", ", values: [b, c]")] {
                limit = limit.fits(&format!("{operator} {count}"), with(operator, values));
            }
            for (count, values) in [
                ("absent", ""),
                ("none", ", values: []"),
                ("null", ", values: null"),
            ] {
                let name = format!("{operator} {count}");
                limit = limit.violates(&name, with(operator, values), "SELECTOR-VALUES", &path);
            }
        }
        for operator in ["Exists", "DoesNotExist"] {
            for (count, values) in [
                ("absent", ""),
                ("none", ", values: []"),
                ("null", ", values: null"),
            ] {
                limit = limit.fits(&format!("{operator} {count}"), with(operator, values));
            }
            let values = with(operator, ", values: [b]");
            limit = limit.violates(&format!("{operator} one"), values, "SELECTOR-VALUES", &path);
        }
        limit
    })
}

fn shapes_of_selectors() -> Vec<Limit> {
    let expression = |text: &str| format!("{{matchExpressions: [{text}]}}");
    let mut limits = each("2.0 D123 types of a selector", |name, it| {
        let case = |selector: &str, path: &str| (it.with(selector), it.inside(path));
        let mut cases = vec![
            (it.with("text"), it.path.clone()),
            (it.with("[]"), it.path.clone()),
            (it.with("true"), it.path.clone()),
            case("{matchLabels: []}", "matchLabels"),
            case("{matchLabels: text}", "matchLabels"),
            case("{matchLabels: {a: 1}}", "matchLabels.a"),
            case("{matchLabels: {a: true}}", "matchLabels.a"),
            case("{matchLabels: {a: {}}}", "matchLabels.a"),
            case(
                "{matchExpressions: {key: a, operator: Exists}}",
                "matchExpressions",
            ),
        ];
        for (text, path) in [
            ("text", ""),
            ("{key: 1, operator: Exists}", ".key"),
            ("{key: a, operator: 1}", ".operator"),
            ("{key: a, operator: In, values: b}", ".values"),
            ("{key: a, operator: In, values: [1]}", ".values[0]"),
        ] {
            cases.push(case(
                &expression(text),
                &format!("matchExpressions[0]{path}"),
            ));
        }
        all_violate(name, "WRONG-TYPE", cases)
    });
    for field in ["key", "operator"] {
        limits.extend(each("2.0 required in an expression", |name, it| {
            let other = match field {
                "key" => "operator: Exists",
                _ => "key: a",
            };
            required(
                &format!("{name} {field}"),
                &it.inside(&format!("matchExpressions[0].{field}")),
                it.with(&expression(&format!("{{{other}}}"))),
                it.with(&expression(&format!("{{{other}, {field}: null}}"))),
            )
        }));
    }
    limits.extend(each("2.0 D26 unknown fields of a selector", |name, it| {
        let mut cases = vec![(
            it.with(&expression("{key: a, operator: Exists, value: b}")),
            it.inside("matchExpressions[0].value"),
        )];
        if !it.bare {
            let both = "{matchLabels: {a: b}, matchlabels: {a: b}}";
            cases.push((it.with(both), it.inside("matchlabels")));
        }
        all_violate(name, "UNKNOWN-FIELD", cases)
    }));
    limits
}

fn labels_in_selectors() -> Vec<Limit> {
    let labels = |it: &Place, labels: &str| it.with(&format!("{{matchLabels: {{{labels}}}}}"));
    let mut limits = each("2.0 D24 D122 labels of a selector", |name, it| {
        let path = it.inside("matchLabels.a");
        limit(name)
            .fits("a value", labels(it, "a: b"))
            .fits("the empty value", labels(it, "a: \"\""))
            .fits("two labels", labels(it, "a: b, c: d"))
            .fits(
                "labels and expressions",
                it.with("{matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}"),
            )
            .violates("null", labels(it, "a: null"), "NULL-LABEL", &path)
            .violates("nothing", labels(it, "a: "), "NULL-LABEL", &path)
    });
    // The CRDs do not check the syntax and D17 does not include it: the consequences stay open.
    limits.extend(places().iter().map(|it| {
        let name = format!("2.0 label syntax is checked at {}", it.label);
        let cases = vec![
            (labels(it, "a_: b"), it.inside("matchLabels.a_")),
            (labels(it, "a: b_"), it.inside("matchLabels.a")),
            (
                it.with("{matchExpressions: [{key: a_, operator: Exists}]}"),
                it.inside("matchExpressions[0].key"),
            ),
            (
                it.with("{matchExpressions: [{key: a, operator: In, values: [b_]}]}"),
                it.inside("matchExpressions[0].values[0]"),
            ),
        ];
        let limit = all_violate(&name, "LABEL-INVALID", cases);
        limit.may("INVALID-SUBJECT", it.subject.unwrap_or_default())
    }));
    limits
}

fn syntax_of_labels() -> Vec<Limit> {
    let mut limits = Vec::new();
    for (form, peer) in [
        (&NP, "namespaceSelector"),
        (&CNP, "namespaces"),
        (&ANP, "namespaces"),
    ] {
        let inside = form.peer_path(Ingress, peer);
        let key = |key: &str| {
            let expression = format!("{{key: \"{key}\", operator: Exists}}");
            form.peer(
                Ingress,
                &format!("{peer}: {{matchExpressions: [{expression}]}}"),
            )
        };
        let value = |value: &str| {
            let expression = format!("{{key: a, operator: In, values: [\"{value}\"]}}");
            form.peer(
                Ingress,
                &format!("{peer}: {{matchExpressions: [{expression}]}}"),
            )
        };
        let key_path = format!("{inside}.matchExpressions[0].key");
        let value_path = format!("{inside}.matchExpressions[0].values[0]");
        let invalid = ("LABEL-INVALID", key_path.as_str());
        let name = |what: &str| format!("2.0 label syntax of {}: {what}", form.label());
        let prefix = |text: &str| {
            let labels: Vec<&[u8]> = text.as_bytes().chunks(63).collect();
            let dotted: Vec<String> = labels.iter().map(|it| "a".repeat(it.len() - 1)).collect();
            key(&format!("{}a/b", dotted.join(".")))
        };
        let mut keys = limit(name("keys"));
        for good in [
            "a",
            "A.b-c_d",
            "example.com/a",
            "kubernetes.io/metadata.name",
        ] {
            keys = keys.fits(good, key(good));
        }
        for bad in ["", "-a", "a-", ".a", "a b", "a/b/c", "/a", "a/", "A/b", "é"] {
            keys = keys.violates(bad, key(bad), "LABEL-INVALID", &key_path);
        }
        let mut values = limit(name("values"));
        for good in ["", "a", "A.b-c_d", "1"] {
            values = values.fits(good, value(good));
        }
        for bad in ["-a", "a-", ".a", "a b", "a/b", "é"] {
            values = values.violates(bad, value(bad), "LABEL-INVALID", &value_path);
        }
        limits.extend([
            length(&name("63 of a key"), 63, invalid, key),
            length(&name("253 of a prefix"), 253, invalid, prefix),
            length(&name("63 of a value"), 63, (invalid.0, &value_path), value),
            keys,
            values,
        ]);
    }
    limits
}
