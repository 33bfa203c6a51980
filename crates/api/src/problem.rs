//! Problems: what is wrong with an input, where exactly, and what to do about it.

/// A range of bytes in one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// The range between two offsets. Sources are kept smaller than 4 GiB, so that an offset fits.
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

/// Another place that a problem is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Where it is.
    pub source: SourceId,
    /// The bytes.
    pub span: Span,
    /// What stands there.
    pub label: &'static str,
}

/// One thing that is wrong, or remarkable, in an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of problem it is.
    pub code: Code,
    /// The source it is in.
    pub source: SourceId,
    /// The bytes it is about.
    pub span: Span,
    /// The object it is in, as `netpol/shop/db`, once it could be told.
    pub object: Option<String>,
    /// The field, as kubectl would write it: `spec.ingress[0].from[1].ipBlock.cidr`.
    pub path: Option<String>,
    /// One sentence, lower case, no full stop.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    /// Another place to look at.
    pub related: Option<Related>,
}

impl Problem {
    /// The severity, which is a property of the code.
    pub fn severity(&self) -> Severity {
        self.code.severity()
    }

    /// Whether the object cannot stand as it is.
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
    HelmTemplate = "HELM-TEMPLATE", Error, "The document is a Helm template that has not been rendered.";
    DuplicateKey = "DUPLICATE-KEY", Error, "A mapping has the same key twice; readers differ in which one they keep.";
    AliasUndefined = "ALIAS-UNDEFINED", Error, "An alias names an anchor that the document does not define before it.";
    AliasCycle = "ALIAS-CYCLE", Error, "An alias stands inside the value it names.";
    AliasBudget = "ALIAS-BUDGET", Error, "The aliases of a document expand to far more than the document holds.";
    MergeKey = "MERGE-KEY", Error, "A merge key `<<` has a value that is neither a mapping nor a list of mappings.";
    NestingDepth = "NESTING-DEPTH", Error, "The document is nested deeper than any object can be.";
    FlowTooLarge = "FLOW-TOO-LARGE", Error, "A collection in brackets is too large to be read as YAML.";
    FileTooLarge = "FILE-TOO-LARGE", Error, "The file is larger than what is read.";
    BrokenGzip = "BROKEN-GZIP", Error, "The file ends in .gz and cannot be decompressed.";
    YamlTag = "YAML-TAG", Error, "A YAML tag has no meaning in a manifest, or does not fit its value.";
    YamlKey = "YAML-KEY", Error, "A key of a mapping is not a plain value.";
    NotAnObject = "NOT-AN-OBJECT", Error, "A document or list item is not a Kubernetes object.";
    NoType = "NO-TYPE", Warning, "A document has neither apiVersion nor kind and is passed over.";
    ApiVersionMissing = "API-VERSION-MISSING", Error, "The object has a kind and no apiVersion.";
    KindMissing = "KIND-MISSING", Error, "The object has an apiVersion and no kind.";
    UnknownVersion = "UNKNOWN-VERSION", Error, "The object is a policy in an apiVersion that does not exist or is not known.";
    UnknownKind = "UNKNOWN-KIND", Error, "The apiVersion has no such kind.";
    DuplicateObject = "DUPLICATE-OBJECT", Error, "The same object is given twice.";
    UnknownField = "UNKNOWN-FIELD", Error, "The field does not exist; an API server would drop it, and the object would mean something else.";
    WrongType = "WRONG-TYPE", Error, "The value has another type than the field.";
    Required = "REQUIRED", Error, "A required field is missing.";
    OneOf = "ONE-OF", Error, "Exactly one of several fields must be set.";
    TooMany = "TOO-MANY", Error, "A list is longer than the API allows.";
    TooFew = "TOO-FEW", Error, "A list is shorter than the API allows.";
    TooLong = "TOO-LONG", Error, "A text is longer than the API allows.";
    OutOfRange = "OUT-OF-RANGE", Error, "A number is outside the range of its field.";
    UnknownValue = "UNKNOWN-VALUE", Error, "The value is not one of those that the field can have.";
    DuplicateItem = "DUPLICATE-ITEM", Error, "A list that must not repeat an entry does.";
    NameMissing = "NAME-MISSING", Error, "The object has no name.";
    NameInvalid = "NAME-INVALID", Error, "The name is not one that Kubernetes allows.";
    BanpName = "BANP-NAME", Error, "A BaselineAdminNetworkPolicy has another name than `default`.";
    NamespaceScope = "NAMESPACE-SCOPE", Warning, "A cluster-wide object has a namespace, which is ignored.";
    LabelInvalid = "LABEL-INVALID", Error, "A label key or value is not one that Kubernetes allows.";
    NullLabel = "NULL-LABEL", Error, "A label has no value; API servers differ in what they make of it.";
    InvalidSubject = "INVALID-SUBJECT", Error, "The policy does not say which pods it is about, so it would select none.";
    SelectorValues = "SELECTOR-VALUES", Error, "The values of a selector do not fit its operator.";
    CidrInvalid = "CIDR-INVALID", Error, "The text is not an address block.";
    CidrExcept = "CIDR-EXCEPT", Error, "An exception does not lie inside its block.";
    CidrHostbits = "CIDR-HOSTBITS", Info, "An address block has bits set after its prefix; they have no effect.";
    CidrLeadingZeros = "CIDR-LEADING-ZEROS", Warning, "An address has leading zeros, which new objects may not have.";
    PortName = "PORT-NAME", Error, "The text is not the name of a port.";
    PortNameOdd = "PORT-NAME-ODD", Warning, "No container port can have this name, so the rule never matches by it.";
    PortNameCrowded = "PORT-NAME-CROWDED", Warning, "A name stands for so many ports of one pod that ingress rules of NetworkPolicies do not match by it there.";
    PortRange = "PORT-RANGE", Error, "The bounds of a port range do not fit.";
    PortRangeSingle = "PORT-RANGE-SINGLE", Warning, "A port range starts where it ends.";
    DialectMixed = "DIALECT-MIXED", Error, "One object mixes the shapes of two releases of its API.";
    RelatedCase = "RELATED-CASE", Warning, "A relation is written in lower case.";
    AnpPrunedWide = "ANP-PRUNED-WIDE", Warning, "Newer clusters would store this peer as one that matches every namespace.";
    DomainInvalid = "DOMAIN-INVALID", Error, "The text is not a domain name pattern.";
    DomainOdd = "DOMAIN-ODD", Warning, "The API admits the domain name, though it is hardly the name of a host.";
    DomainAction = "DOMAIN-ACTION", Error, "Only rules that accept can name domains.";
    Channel = "CHANNEL", Warning, "Not every release channel of the API accepts this.";
    BareSelector = "BARE-SELECTOR", Warning, "A selector of the 2016 proposal is written as a bare map of labels.";
    IsolationAnnotation = "ISOLATION-ANNOTATION", Error, "An isolation annotation cannot be read, so the namespace counts as isolated.";
    IpInvalid = "IP-INVALID", Error, "The text is not an IP address.";
    PortEmptyTcp = "PORT-EMPTY-TCP", Warning, "An entry of `ports` is empty, which means every port of TCP and nothing else.";
    IgnoredRules = "IGNORED-RULES", Warning, "The NetworkPolicy has rules for a direction that its policyTypes do not name; they are ignored.";
    PodSelectorEverywhere = "POD-SELECTOR-EVERYWHERE", Warning, "A peer of a cluster-wide policy of 2021 has a pod selector alone, which means pods of all namespaces.";
    NamespaceUnknown = "NS-UNKNOWN", Info, "A pod's namespace is not given, so that it has no label but its name.";
    IpConflict = "IP-CONFLICT", Warning, "Two pods, or a pod and a node, have the same address.";
    OverBudget = "OVER-BUDGET", Warning, "The NetworkPolicies of a namespace have more entries than nodes keep for it; this one does not fit, and none of its rules has an effect.";
    MoreProblems = "MORE-PROBLEMS", Error, "The document has more problems than are reported.";
    }
}

impl Code {
    /// Whether the object is right and its author may still have meant something else, so that it is
    /// for `lint` to say and not for `check`.
    pub fn is_lint(self) -> bool {
        matches!(
            self,
            Code::PortEmptyTcp | Code::IgnoredRules | Code::PodSelectorEverywhere
        )
    }
}

/// The most problems of one document that are kept: a broken generator can make millions, and
/// memory must stay in proportion to the input.
pub(crate) const MAX_PROBLEMS: usize = 10_000;

/// The problems of one document.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
    /// How many of them only `lint` tells. They have room of their own, so that `check` keeps what it
    /// would keep without them.
    n_lint: usize,
    /// Where the first problem that was not kept stands, and how many of them were errors.
    dropped: Option<(SourceId, Span)>,
    dropped_errors: usize,
}

/// A moment in the reading of a document.
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

    /// How many there were, as far as they were kept.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// A mark for the questions below.
    pub(crate) fn mark(&self) -> ProblemMark {
        ProblemMark {
            kept: self.list.len(),
            dropped_errors: self.dropped_errors,
        }
    }

    /// What was reported since a mark.
    pub(crate) fn since(&self, mark: ProblemMark) -> impl Iterator<Item = &Problem> {
        self.list.iter().skip(mark.kept)
    }

    /// What was reported since a mark, to add to it.
    pub(crate) fn since_mut(&mut self, mark: ProblemMark) -> impl Iterator<Item = &mut Problem> {
        self.list.iter_mut().skip(mark.kept)
    }

    /// Whether there was an error since a mark.
    pub(crate) fn errors_since(&self, mark: ProblemMark) -> bool {
        self.dropped_errors > mark.dropped_errors || self.since(mark).any(Problem::is_error)
    }

    /// Takes back what was reported since a mark.
    pub(crate) fn discard_since(&mut self, mark: ProblemMark) {
        let forgotten = self.since(mark).filter(|it| it.code.is_lint()).count();
        self.n_lint -= forgotten;
        self.list.truncate(mark.kept);
        self.dropped_errors = mark.dropped_errors;
    }

    /// All of them; the last one says if there were more.
    pub(crate) fn into_vec(self) -> Vec<Problem> {
        let mut problems = self.list;
        if let Some((source, span)) = self.dropped {
            problems.push(Problem {
                code: Code::MoreProblems,
                source,
                span,
                object: None,
                path: None,
                message: format!("the document has more than {MAX_PROBLEMS} problems; from here on they are not reported"),
                help: Some("correct the others first".to_owned()),
                related: None,
            });
        }
        problems
    }
}
