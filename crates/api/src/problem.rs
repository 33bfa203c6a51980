//! Problems: what is wrong with an input, the exact place, and a help.

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// The range between two offsets. Sources are smaller than 4 GiB: every offset fits.
    pub fn new(start: usize, end: usize) -> Span {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX);
        Span {
            start: clamp(start),
            end: clamp(end.max(start)),
        }
    }

    /// The character of a text at an offset; at its end, nothing.
    pub fn character(text: &str, offset: usize) -> Span {
        let mut start = offset.min(text.len());
        while !text.is_char_boundary(start) {
            start -= 1;
        }
        let length = text
            .get(start..)
            .and_then(|rest| rest.chars().next())
            .map_or(0, char::len_utf8);
        Span::new(start, start + length)
    }

    /// From the start of this range to the end of another.
    pub fn to(self, other: Span) -> Span {
        Span {
            start: self.start,
            end: other.end.max(self.start),
        }
    }

    /// The range as indices of a text.
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// Which of the sources of one reading a position is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub u32);

pub use palisade_core::analysis::lint::Severity;

/// Another place of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where it is.
    pub source: SourceId,
    /// The bytes.
    pub span: Span,
    /// What is there.
    pub label: &'static str,
}

/// An error, or a likely mistake, in an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem.
    pub code: Code,
    /// The source it is in.
    pub source: SourceId,
    /// Its bytes.
    pub span: Span,
    /// The object it is in, as `netpol/shop/db`, if its name was read.
    pub object: Option<String>,
    /// The field, as kubectl would write it: `spec.ingress[0].from[1].ipBlock.cidr`.
    pub path: Option<String>,
    /// One sentence, lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// A related place.
    pub related: Option<Related>,
}

impl Problem {
    /// The severity, which is a property of the code.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Whether the object is invalid.
    pub fn is_error(&self) -> bool {
        self.severity() == Severity::Error
    }
}

palisade_core::codes! {
    /// The kinds of problems. Their names are stable: scripts may rely on them.
    {
    YamlSyntax = "YAML-SYNTAX", Error, "The document is not YAML.";
    JsonSyntax = "JSON-SYNTAX", Error, "The document is not JSON.";
    NotUtf8 = "NOT-UTF8", Error, "The document has bytes that are not UTF-8.";
    ControlCharacter = "CONTROL-CHARACTER", Error, "The document has a character that YAML does not allow.";
    TabIndent = "TAB-INDENT", Error, "A tab is used for indentation, where YAML needs spaces.";
    HelmTemplate = "HELM-TEMPLATE", Error, "The document is an unrendered Helm template.";
    DuplicateKey = "DUPLICATE-KEY", Error, "A mapping has a key twice; readers differ in which one they keep.";
    AliasUndefined = "ALIAS-UNDEFINED", Error, "An alias names an anchor that the document does not define before it.";
    AliasCycle = "ALIAS-CYCLE", Error, "An alias is inside the value it names.";
    AliasBudget = "ALIAS-BUDGET", Error, "The aliases of a document expand to far more than the document has.";
    MergeKey = "MERGE-KEY", Error, "A merge key `<<` has a value that is neither a mapping nor a list of mappings.";
    NestingDepth = "NESTING-DEPTH", Error, "The document is nested deeper than any object can be.";
    FlowTooLarge = "FLOW-TOO-LARGE", Error, "A collection in brackets is too large to be read as YAML.";
    FileTooLarge = "FILE-TOO-LARGE", Error, "The file is larger than the limit.";
    BrokenGzip = "BROKEN-GZIP", Error, "The file ends in .gz and cannot be decompressed.";
    YamlTag = "YAML-TAG", Error, "A YAML tag has no meaning in a manifest, or does not fit its value.";
    YamlKey = "YAML-KEY", Error, "A key of a mapping is not a plain value.";
    NotAnObject = "NOT-AN-OBJECT", Error, "A document or list item is not a Kubernetes object.";
    NoType = "NO-TYPE", Warning, "A document has neither apiVersion nor kind and is skipped.";
    ApiVersionMissing = "API-VERSION-MISSING", Error, "The object has a kind and no apiVersion.";
    KindMissing = "KIND-MISSING", Error, "The object has an apiVersion and no kind.";
    UnknownVersion = "UNKNOWN-VERSION", Error, "The object is a policy with an unknown apiVersion.";
    UnknownKind = "UNKNOWN-KIND", Error, "The apiVersion has no such kind.";
    DuplicateObject = "DUPLICATE-OBJECT", Error, "The input has an object twice.";
    UnknownField = "UNKNOWN-FIELD", Error, "The field does not exist; an API server drops it, which changes the object.";
    WrongType = "WRONG-TYPE", Error, "The value does not have the type of the field.";
    Required = "REQUIRED", Error, "A required field is missing.";
    OneOf = "ONE-OF", Error, "Exactly one of several fields must be set.";
    TooMany = "TOO-MANY", Error, "A list is longer than the API allows.";
    TooFew = "TOO-FEW", Error, "A list is shorter than the API allows.";
    TooLong = "TOO-LONG", Error, "A text is longer than the API allows.";
    OutOfRange = "OUT-OF-RANGE", Error, "A number is outside the range of its field.";
    UnknownValue = "UNKNOWN-VALUE", Error, "The value is not one of the field's values.";
    DuplicateItem = "DUPLICATE-ITEM", Error, "A list has a duplicate entry.";
    NameMissing = "NAME-MISSING", Error, "The object has no name.";
    NameInvalid = "NAME-INVALID", Error, "The name is not a valid name in Kubernetes.";
    BanpName = "BANP-NAME", Error, "A BaselineAdminNetworkPolicy has another name than `default`.";
    NamespaceScope = "NAMESPACE-SCOPE", Warning, "A cluster-wide object has a namespace, which is ignored.";
    LabelInvalid = "LABEL-INVALID", Error, "A label key or value is not valid in Kubernetes.";
    NullLabel = "NULL-LABEL", Error, "A label has no value; API servers differ in how they read it.";
    InvalidSubject = "INVALID-SUBJECT", Error, "The policy has no readable subject; it would select no pods.";
    SelectorValues = "SELECTOR-VALUES", Error, "The values of a selector do not fit its operator.";
    CidrInvalid = "CIDR-INVALID", Error, "The text is not an address block.";
    CidrExcept = "CIDR-EXCEPT", Error, "An exception is not inside its block.";
    CidrHostbits = "CIDR-HOSTBITS", Info, "An address block has bits set after its prefix; they have no effect.";
    CidrLeadingZeros = "CIDR-LEADING-ZEROS", Warning, "An address has leading zeros, which new objects must not have.";
    PortName = "PORT-NAME", Error, "The text is not a port name.";
    PortNameOdd = "PORT-NAME-ODD", Warning, "No container port can have this name; the rule never matches by it.";
    PortNameCrowded = "PORT-NAME-CROWDED", Warning, "Too many ports of one pod have the same name; ingress rules of NetworkPolicies do not match it there.";
    PortRange = "PORT-RANGE", Error, "The bounds of a port range are not valid.";
    PortRangeSingle = "PORT-RANGE-SINGLE", Warning, "A port range starts where it ends.";
    DialectMixed = "DIALECT-MIXED", Error, "One object mixes the shapes of two releases of its API.";
    RelatedCase = "RELATED-CASE", Warning, "A relation is written in lower case.";
    AnpPrunedWide = "ANP-PRUNED-WIDE", Warning, "Newer clusters would store this peer as one that matches every namespace.";
    DomainInvalid = "DOMAIN-INVALID", Error, "The text is not a domain name pattern.";
    DomainOdd = "DOMAIN-ODD", Warning, "The API accepts the domain name, which is probably not a host name.";
    DomainAction = "DOMAIN-ACTION", Error, "Only rules that accept can have domain names.";
    Channel = "CHANNEL", Warning, "Not every release channel of the API accepts this.";
    BareSelector = "BARE-SELECTOR", Warning, "A selector of the 2016 proposal is written as a bare map of labels.";
    IsolationAnnotation = "ISOLATION-ANNOTATION", Error, "An isolation annotation is unreadable; the namespace counts as isolated.";
    IpInvalid = "IP-INVALID", Error, "The text is not an IP address.";
    PortEmptyTcp = "PORT-EMPTY-TCP", Warning, "An entry of `ports` is empty; it matches every TCP port and nothing else.";
    IgnoredRules = "IGNORED-RULES", Warning, "The NetworkPolicy has rules for a direction that its policyTypes do not include; they are ignored.";
    PodSelectorEverywhere = "POD-SELECTOR-EVERYWHERE", Warning, "A peer of a 2021 cluster-wide policy has only a pod selector; it matches pods of all namespaces.";
    NamespaceUnknown = "NS-UNKNOWN", Info, "The input has no Namespace object for a pod; the namespace's only label is its name.";
    IpConflict = "IP-CONFLICT", Warning, "Two pods, or a pod and a node, have the same address.";
    OverBudget = "OVER-BUDGET", Warning, "The NetworkPolicies of a namespace exceed its budget; this one does not fit, and none of its rules has an effect.";
    MoreProblems = "MORE-PROBLEMS", Error, "The document has more problems than are reported.";
    }
}

impl Code {
    /// Whether the object is valid and may still be a mistake: `lint` reports it, and `check` does
    /// not.
    pub fn is_lint(self) -> bool {
        matches!(
            self,
            Code::PortEmptyTcp | Code::IgnoredRules | Code::PodSelectorEverywhere
        )
    }
}

/// The most problems of one document that are kept: a broken generator can produce millions, and
/// memory must stay in proportion to the input.
pub(crate) const MAX_PROBLEMS: usize = 10_000;

/// The problems of one document.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    /// How many of them only `lint` reports. They have a limit of their own: `check` keeps what it
    /// would keep without them.
    n_lint: usize,
    /// The place of the first problem that was not kept, and how many of those were errors.
    dropped: Option<(SourceId, Span)>,
    dropped_errors: usize,
}

/// A position in the list of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProblemMark {
    kept: usize,
    dropped_errors: usize,
}

impl Problems {
    pub(crate) fn push(&mut self, problem: Problem) {
        if problem.code.is_lint() {
            if self.n_lint < MAX_PROBLEMS {
                self.n_lint += 1;
                self.list.push(problem);
            }
        } else if self.list.len() - self.n_lint < MAX_PROBLEMS {
            self.list.push(problem);
        } else {
            self.dropped.get_or_insert((problem.source, problem.span));
            self.dropped_errors += usize::from(problem.is_error());
        }
    }

    /// How many were kept.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// A mark for the methods below.
    pub(crate) fn mark(&self) -> ProblemMark {
        ProblemMark {
            kept: self.list.len(),
            dropped_errors: self.dropped_errors,
        }
    }

    /// The problems since a mark.
    pub(crate) fn since(&self, mark: ProblemMark) -> impl Iterator<Item = &Problem> {
        self.list.iter().skip(mark.kept)
    }

    /// The problems since a mark, mutable.
    pub(crate) fn since_mut(&mut self, mark: ProblemMark) -> impl Iterator<Item = &mut Problem> {
        self.list.iter_mut().skip(mark.kept)
    }

    /// Whether there was an error since a mark.
    pub(crate) fn errors_since(&self, mark: ProblemMark) -> bool {
        self.dropped_errors > mark.dropped_errors || self.since(mark).any(Problem::is_error)
    }

    /// Removes the problems since a mark.
    pub(crate) fn discard_since(&mut self, mark: ProblemMark) {
        let forgotten = self.since(mark).filter(|it| it.code.is_lint()).count();
        self.n_lint -= forgotten;
        self.list.truncate(mark.kept);
        self.dropped_errors = mark.dropped_errors;
    }

    /// All of them; the last one reports whether there were more.
    pub(crate) fn into_vec(self) -> Vec<Problem> {
        let mut problems = self.list;
        if let Some((source, span)) = self.dropped {
            problems.push(Problem {
                code: Code::MoreProblems,
                source,
                span,
                object: None,
                path: None,
                message: format!("the document has more than {MAX_PROBLEMS} problems; problems from here on are not reported"),
                help: Some("correct the others first".to_owned()),
                related: None,
            });
        }
        problems
    }
}
